"""The bytes of each token, read from the tokenizer's files.

Byte-level BPE decodes token by token, so text needs no tokenizer library and no torch: this stage
starts in a fraction of a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_config.errors import OmniError


class UnreadableTokenizer(OmniError):
    """The checkpoint has no tokenizer files that this version understands."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What each token stands for.

    Attributes:
        pieces: bytes of each token by id; a token may be a part of a character.
        special: ids of tokens that are no text, such as the end of a turn.
    """

    pieces: Mapping[int, bytes]
    special: frozenset[int]

    @classmethod
    def read(cls, folder: Path) -> Vocabulary:
        """Read `vocab.json` and `tokenizer_config.json`, or `tokenizer.json` alone.

        Raises:
            UnreadableTokenizer: they are missing, or the tokenizer is of another kind.
        """
        try:
            if (folder / "vocab.json").is_file():
                base = _json(folder / "vocab.json")
                added = _json(folder / "tokenizer_config.json")["added_tokens_decoder"]
                tokens = [(int(number), token) for number, token in added.items()]
            else:
                whole = _json(folder / "tokenizer.json")
                base = whole["model"]["vocab"]
                tokens = [(token["id"], token) for token in whole["added_tokens"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"{folder} has no tokenizer of byte-level BPE: {error}"
            raise UnreadableTokenizer(problem) from error
        alphabet = {letter: byte for byte, letter in byte_alphabet().items()}
        pieces = {number: _bytes_of(piece, alphabet) for piece, number in base.items()}
        pieces |= {number: token["content"].encode() for number, token in tokens}
        return cls(pieces, frozenset(number for number, token in tokens if token["special"]))

    def text_bytes(self, token_id: int) -> bytes:
        """Bytes that a token adds to a text: none if it is special or stands for nothing."""
        return b"" if token_id in self.special else self.pieces.get(token_id, b"")


def byte_alphabet() -> dict[int, str]:
    """Return the printable character that stands for each byte in byte-level BPE files.

    Printable bytes stand for themselves; the others take the characters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + position) for position, byte in enumerate(others)
    }


def _bytes_of(piece: str, alphabet: Mapping[str, int]) -> bytes:
    try:
        return bytes(alphabet[letter] for letter in piece)
    except KeyError:
        return piece.encode()


def _json(file: Path) -> Any:  # noqa: ANN401
    return json.loads(file.read_text(encoding="utf-8"))
