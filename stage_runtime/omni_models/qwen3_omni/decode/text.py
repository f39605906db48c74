"""One answer's text, growing. Pure: tokens in, text out.

Two things may be held back for a moment: bytes that are not a whole character yet, and text that
may turn out to be the beginning of a stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from omni_models.qwen3_omni.decode.vocabulary import Vocabulary


class StopStrings:
    """Cuts text at the first of some strings, which may come in pieces."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(string for string in strings if string)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """Take the next piece and return what can be shown for certain."""
        if self.found is not None:
            return ""
        text = self._held + text
        hits = [(at, string) for string in self._strings if (at := text.find(string)) >= 0]
        if hits:
            # The one that is complete first, so that how text is cut into pieces does not matter.
            at, self.found = min(hits, key=lambda hit: (hit[0] + len(hit[1]), hit[0]))
            self._held = ""
            return text[:at]
        kept = max((_overlap(text, string) for string in self._strings), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def flush(self) -> str:
        """Return what was held back: no stop string will complete it."""
        held, self._held = self._held, ""
        return held


class GrowingText:
    """The text of one answer.

    Attributes:
        text: everything shown so far.
    """

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str] = ()) -> None:
        self.text = ""
        self._vocabulary = vocabulary
        # Broken sequences become U+FFFD exactly as in tokenizer.decode().
        self._characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = StopStrings(stop)

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._stop.found

    def add(self, token_ids: Iterable[int]) -> str:
        """Take tokens and return the text that is new and final."""
        pieces = b"".join(map(self._vocabulary.text_bytes, token_ids))
        return self._show(self._stop.feed(self._characters.decode(pieces)))

    def end(self) -> str:
        """Return the rest; no token follows."""
        rest = self._stop.feed(self._characters.decode(b"", final=True))
        return self._show(rest + self._stop.flush())

    def _show(self, new: str) -> str:
        self.text += new
        return new


def _overlap(text: str, string: str) -> int:
    """Length of the longest end of `text` that `string` begins with, but not all of it."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if string.startswith(text[-n:])), 0)
