"""The tiny checkpoint's tokenizer: byte-level BPE as the real one's, learnt from a few sentences.

Every piece of the vocabulary decodes to bytes, single bytes included, so a random model writes
text with broken characters in it, which is what a detokeniser must be tested with.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from omni_models.qwen3_omni.decode.vocabulary import byte_alphabet

BASE_SIZE = 1024
"""Pieces of the vocabulary before the special tokens."""

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
)
"""In the order of the published vocabulary, where they follow the base vocabulary as here."""

TEXT_TOKENS = frozenset(
    {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
    | {name for name in SPECIAL_TOKENS if name.startswith(("<|fim", "<|repo", "<|file"))}
)
"""Tokens with a place of their own that stay visible in decoded text."""

NAMED_TOKENS = {
    "image_token": "<|image_pad|>",
    "audio_token": "<|audio_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
"""Tokens that the processor asks the tokenizer for, by the name it uses."""

# Roles come first and often, because the model's configuration names their single tokens.
_CORPUS = "user\nassistant\nsystem\n" * 60 + (
    "Describe the image and the audio. Say a short sentence about the weather today. "
    "What do you hear in this clip? What do you see in this picture? What happens in the video? "
    "You are a helpful assistant. Please answer in one short sentence, then stop. "
    "The quick brown fox jumps over the lazy dog while the sun is shining on the green hills. "
)
_MERGES = 300
_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the tokenizer's files hold.

    Attributes:
        pieces: id of each piece, written in the byte alphabet of `byte_alphabet`.
        merges: pairs of pieces in the order in which they are joined.
    """

    pieces: dict[str, int]
    merges: tuple[tuple[str, str], ...]

    def id_of(self, token: str) -> int:
        """Return the id of a special token or of a piece without spaces."""
        if token in SPECIAL_TOKENS:
            return len(self.pieces) + SPECIAL_TOKENS.index(token)
        return self.pieces[token]

    @property
    def size(self) -> int:
        """Number of tokens, special ones included."""
        return len(self.pieces) + len(SPECIAL_TOKENS)


def tiny_vocabulary() -> Vocabulary:
    """Return the vocabulary; always the same one, whatever the seed of the weights."""
    alphabet = byte_alphabet()
    words = Counter(
        tuple(alphabet[byte] for byte in word.encode())
        for word in re.findall(r" ?\w+| ?[^\w\s]+|\s+", _CORPUS)
    )
    merges: list[tuple[str, str]] = []
    while len(merges) < _MERGES:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        if not pairs:
            break
        # The pair itself breaks ties, so that the order of counting does not matter.
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = Counter({_joined(word, best): count for word, count in words.items()})
    pieces = dict.fromkeys((*sorted(alphabet.values()), *("".join(pair) for pair in merges)))
    pieces |= dict.fromkeys(itertools.islice(_invented(), 2 * BASE_SIZE))
    kept = itertools.islice(pieces, BASE_SIZE)
    return Vocabulary({piece: index for index, piece in enumerate(kept)}, tuple(merges))


def _joined(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    parts: list[str] = []
    index = 0
    while index < len(word):
        whole = word[index : index + 2] == pair
        parts.append("".join(pair) if whole else word[index])
        index += 2 if whole else 1
    return tuple(parts)


def _invented() -> Iterator[str]:
    """Words that no merge builds: they only ever come out of the model, and read as words."""
    space = byte_alphabet()[ord(" ")]
    for syllables in itertools.product(_SYLLABLES, _SYLLABLES, ("", *_SYLLABLES)):
        yield space + "".join(syllables)
