"""SGLang's grammar backend over a vocabulary of ours.

xgrammar must see each token as the bytes that the decode stage shows for it. A special token is
shown as nothing and so is none of any grammar's text: it cannot slip into a JSON string.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sglang.srt.constrained.base_grammar_backend import BaseGrammarObject
from sglang.srt.constrained.xgrammar_backend import XGrammarGrammarBackend
from xgrammar import GrammarCompiler, TokenizerInfo, VocabType

from omni_config.errors import OmniError

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

NAME = "xgrammar"
_CONTROL = frozenset(range(0x20)) - frozenset(b"\r\n")
MOST_COMPILED = 128
"""Grammars kept for requests to come; a large one takes some megabytes."""


class UnservedGrammarBackend(OmniError):
    """Only xgrammar can be given a vocabulary without a tokenizer."""

    def __init__(self, name: str) -> None:
        super().__init__(f"engine.grammar_backend must be {NAME} or none, got '{name}'")


class TokenBytes:
    """The vocabulary, as SGLang's backend asks for it.

    Args:
        pieces: what each token adds to a text; nothing where it never is part of one.
        stop_token_ids: tokens that end every answer.
    """

    def __init__(self, pieces: Sequence[bytes], stop_token_ids: frozenset[int]) -> None:
        self._pieces = list(pieces)
        self._stops = sorted(stop_token_ids)

    def init_xgrammar(self) -> tuple[TokenizerInfo, None]:
        """Return the vocabulary, and no other stop tokens."""
        info = TokenizerInfo(self._pieces, VocabType.RAW, stop_token_ids=self._stops)
        return info, None


class Grammars(XGrammarGrammarBackend):
    """Compiles grammars, and keeps those used last: SGLang's own keeps all there ever were.

    Documents are written without tabs and other control characters. xgrammar would let them into
    strings of bounded length, where JSON forbids them. Text around free calls may hold them.
    """

    def __init__(
        self, pieces: Sequence[bytes], stop_token_ids: frozenset[int], whitespace: int | None
    ) -> None:
        written = [b"" if _CONTROL & set(piece) else piece for piece in pieces]
        vocabulary = TokenBytes(written, stop_token_ids)
        super().__init__(vocabulary, len(pieces), max_whitespace_cnt=whitespace)
        self.grammar_compiler = _compiler(vocabulary)
        everything = TokenBytes(pieces, stop_token_ids)
        self._text = XGrammarGrammarBackend(everything, len(pieces))
        self._text.grammar_compiler = _compiler(everything)

    def dispatch_structural_tag(self, key_string: str) -> BaseGrammarObject:
        """Compile a structural tag."""
        if json.loads(key_string)["format"]["type"] == "triggered_tags":
            return self._text.dispatch_structural_tag(key_string)
        return super().dispatch_structural_tag(key_string)

    def set_cache(self, key: tuple[str, str], value: BaseGrammarObject) -> None:
        """Keep a grammar, for the first one that was kept."""
        while len(self.cache) >= MOST_COMPILED:
            del self.cache[next(iter(self.cache))]
        self.cache[key] = value


def _compiler(vocabulary: TokenBytes) -> GrammarCompiler:
    info, _ = vocabulary.init_xgrammar()
    return GrammarCompiler(info, cache_enabled=False)


def grammars_of(
    args: ServerArgs, pieces: Sequence[bytes], stop_token_ids: frozenset[int]
) -> Grammars | None:
    """Return what compiles grammars; None where the configuration wants none.

    Raises:
        UnservedGrammarBackend: it wants another than xgrammar.
    """
    if args.grammar_backend == "none":
        return None
    if args.grammar_backend not in (None, NAME):
        raise UnservedGrammarBackend(args.grammar_backend)
    return Grammars(pieces, stop_token_ids, args.constrained_json_max_whitespace_cnt)
