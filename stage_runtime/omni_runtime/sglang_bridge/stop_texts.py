"""A tokenizer as SGLang's checks want it, which ends nothing by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class StopTexts:
    """Decodes the tail of an answer, so that a stop text is found however it was cut into tokens.

    SGLang also takes stop tokens from its tokenizer. Here they travel with each request, so none
    are given.

    Attributes:
        pieces: what each token adds to a text, for grammars; empty where no request can have any.
    """

    eos_token_id: int | None = None
    additional_stop_token_ids: frozenset[int] | None = None

    def __init__(self, tokenizer: PreTrainedTokenizerBase, pieces: Sequence[bytes] = ()) -> None:
        self.pieces = pieces
        self._tokenizer = tokenizer

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the tokens of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._tokenizer.decode(list(ids)))
