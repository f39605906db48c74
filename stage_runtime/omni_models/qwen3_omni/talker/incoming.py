"""What the thinker sent for one speech, until the speech can take it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from omni_models.qwen3_omni.segments import Ints
from omni_models.qwen3_omni.talker.row_source import TalkerRows
from omni_models.qwen3_omni.talker.speech import Speech
from omni_wire.errors import StageFailed

NO_POSITIONS: Ints = np.zeros(0, np.int64)


@dataclass(slots=True)
class Incoming:
    """Rows in the order in which they came; they may come before the prompt.

    Attributes:
        hidden: hidden rows of media, [rows, thinker's hidden] each; no rows at all in one of them
            means that none will come and zeros stand for all.
        text: projected rows of tokens, [hidden] each.
        done: whether the text is complete.
        media_positions: positions in the prompt whose hidden rows are still awaited, ascending.
    """

    hidden: list[torch.Tensor] = field(default_factory=list)
    text: list[torch.Tensor] = field(default_factory=list)
    done: bool = False
    media_positions: Ints = field(default_factory=lambda: NO_POSITIONS)

    def fill_media(self, speech: Speech, source: TalkerRows) -> None:
        """Move hidden rows into the prompt.

        Raises:
            StageFailed: more came than the prompt has places for.
        """
        for hidden in self.hidden:
            awaited = self.media_positions
            rows = source.media(hidden) if len(hidden) else source.no_media(len(awaited))
            if len(rows) > len(awaited):
                raise StageFailed(f"{len(rows)} media rows came for {len(awaited)} places")
            speech.prompt[torch.from_numpy(awaited[: len(rows)])] = rows
            self.media_positions = awaited[len(rows) :]
        if self.hidden:
            self.hidden = []
            rest = self.media_positions
            speech.known = int(rest[0]) if len(rest) else speech.length - 1

    def fill_text(self, speech: Speech, end: torch.Tensor) -> bool:
        """Move text rows into the speech; return whether the first of all was among them."""
        begins = bool(self.text) and speech.tokens == 0
        if begins:
            speech.prompt[-1] += self.text.pop(0)
            speech.tokens = 1
        speech.text += self.text
        speech.tokens += len(self.text)
        self.text = []
        if self.done and not speech.text_done:
            speech.text.append(end)
            speech.text_done = True
        return begins
