"""Everything one request's speech is made of.

To SGLang the talker is a count of positions. What stands at a position is asked here: a row of the
prompt, an input row kept from an earlier step, or the newest frame's feedback plus the next row of
text. Asking by absolute position is what makes held rows, chunks and retraction come out right: the
answer does not depend on which batch asks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from omni_models.qwen3_omni.parameters import TalkerSampling


@dataclass(slots=True)
class Speech:
    """One request.

    Attributes:
        prompt: rows of the prompt [length, hidden]; those from `known` on are not known yet.
        known: leading rows of the prompt that are.
        positions: rotary positions of the prompt, int64 [3, length].
        pad: what is added to the feedback once the text is over, [hidden].
        min_tokens: tokens of text that must have come before speech may start.
        seed: of every draw.
        text: rows added to the feedback, one per frame, [hidden] each.
        text_done: whether no more text will come.
        tokens: tokens of text so far.
        start_tokens: tokens of text that speech waited for; 0 before it may start.
        said: first code of every frame so far.
        request_id: the engine's id, None before it was submitted.
    """

    prompt: torch.Tensor
    known: int
    positions: torch.Tensor
    pad: torch.Tensor
    sampling: TalkerSampling
    min_tokens: int
    seed: int
    text: list[torch.Tensor] = field(default_factory=list)
    text_done: bool = False
    tokens: int = 0
    start_tokens: int = 0
    said: list[int] = field(default_factory=list)
    request_id: str | None = None
    _inputs: list[torch.Tensor] = field(default_factory=list)
    _feedback: torch.Tensor | None = None
    _unsent: list[torch.Tensor] = field(default_factory=list)
    sent: int = 0

    @property
    def length(self) -> int:
        """Positions of the prompt."""
        return len(self.prompt)

    @property
    def may_start(self) -> bool:
        """Whether enough text has come for the last row of the prompt to be fed."""
        return self.text_done or self.tokens >= self.min_tokens

    def open_gate(self) -> None:
        """Note what speech waited for, once it may start; text that came meanwhile counts not."""
        if not self.start_tokens and self.may_start:
            self.start_tokens = min(self.tokens, self.min_tokens)

    def ready(self, position: int) -> bool:
        """Return whether the input of a position is known and may be used."""
        if position < self.length - 1:
            return position < self.known
        if position == self.length - 1:
            return self.known == self.length and self.may_start
        frame = position - self.length
        return frame < len(self._inputs) or frame < len(self.text) or self.text_done

    def row(self, position: int) -> torch.Tensor:
        """Return the input of a position, [hidden].

        A row that is being aborted runs once more whatever its input; it gets the pad row.
        """
        if not self.ready(position):
            return self.pad
        frame = position - self.length
        if frame < 0:
            return self.prompt[position]
        if frame == len(self._inputs):
            assert self._feedback is not None
            text = self.text[frame] if frame < len(self.text) else self.pad
            self._inputs.append(self._feedback + text)
        return self._inputs[frame]

    def rows(self, start: int, end: int) -> torch.Tensor:
        """Return the inputs of positions `start` to `end`, [end - start, hidden]."""
        if end <= min(self.known, self.length - 1):
            return self.prompt[start:end]
        return torch.stack([self.row(position) for position in range(start, end)])

    def places(self, start: int, end: int) -> torch.Tensor:
        """Return rotary positions int64 [3, end - start]."""
        prompt = self.positions[:, start:end]
        if end <= self.length:
            return prompt
        first = max(start, self.length)
        after = torch.arange(first, end) - self.length + self.positions.max() + 1
        return torch.cat([prompt, after.expand(3, -1)], -1)

    def speaks(self, end: int) -> bool:
        """Return whether a step over positions up to `end` makes a new frame.

        Otherwise it covers an unfinished prompt, or replays what was spoken before.
        """
        return end - self.length == len(self.said)

    def say(self, codes: list[int], frame: torch.Tensor, feedback: torch.Tensor) -> None:
        """Take a frame: its codes, the same as int16 [groups], and their summed embeddings."""
        self.said.append(codes[0])
        self._feedback = feedback
        self._unsent.append(frame)

    def unsent(self) -> int:
        """Return how many frames have not left."""
        return len(self._unsent)

    def leave(self) -> list[torch.Tensor]:
        """Return the frames that have not left, which now do."""
        frames, self._unsent = self._unsent, []
        self.sent += len(frames)
        return frames
