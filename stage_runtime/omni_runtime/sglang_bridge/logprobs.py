"""Log-probabilities of drawn tokens, from the step that draws them to the host that tells them.

Steps overlap on a GPU: while one is drawn, the results of the one before are processed. What a step
draws stays on the device until its own results are, so nothing waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from omni_runtime.sglang_bridge.sampling import TokenLogprob


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What one step drew for those who want to know, on the device.

    Attributes:
        rows: request, place of its token in the answer, and number of likeliest tokens it wants.
        logprobs: [rows].
        top_tokens, top_logprobs: [rows, most], likeliest first.
    """

    rows: tuple[tuple[str, int, int], ...]
    logprobs: torch.Tensor
    top_tokens: torch.Tensor
    top_logprobs: torch.Tensor


class LogprobLedger:
    """Keeps log-probabilities by request and place in its answer, so that a retracted row which
    draws a token again does not tell it twice.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, int] = {}
        self._steps: deque[_Drawn | None] = deque()
        self._told: dict[str, dict[int, TokenLogprob]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def open(self, request_id: str, top: int) -> None:
        """Keep those of a request, and of so many of the likeliest tokens of each step."""
        self._wanted[request_id] = top
        self._told[request_id] = {}

    def close(self, request_id: str) -> None:
        """Forget a request; unknown ones are fine."""
        self._wanted.pop(request_id, None)
        self._told.pop(request_id, None)

    def begin(self) -> None:
        """A step begins; each that does is settled once, in order."""
        self._steps.append(None)

    def note(
        self, rows: Sequence[tuple[str, int]], logits: torch.Tensor, tokens: torch.Tensor
    ) -> None:
        """Keep what the step that began last has drawn.

        Args:
            rows: request of each row, and how many tokens it has got before; negative in the
                middle of a prompt, where what is drawn is thrown away.
            logits: float32 [rows, vocabulary], before temperature and filters.
            tokens: int64 [rows].
        """
        wanting = [
            index
            for index, (request_id, place) in enumerate(rows)
            if request_id in self._wanted and place >= 0
        ]
        if not wanting:
            return
        told = tuple((*rows[index], self._wanted[rows[index][0]]) for index in wanting)
        logprobs = logits[wanting].log_softmax(-1)
        most = min(max(top for _, _, top in told), logits.shape[-1])
        top_logprobs, top_tokens = logprobs.topk(most, dim=-1)
        own = logprobs.gather(-1, tokens[wanting].long()[:, None]).squeeze(-1)
        self._steps[-1] = _Drawn(told, own, top_tokens, top_logprobs)

    def settle(self) -> None:
        """Bring what the oldest step drew to the host; the device has finished it."""
        drawn = self._steps.popleft()
        if drawn is None:
            return
        own, tokens = drawn.logprobs.tolist(), drawn.top_tokens.tolist()
        tops = drawn.top_logprobs.tolist()
        for index, (request_id, place, top) in enumerate(drawn.rows):
            # An overlapped step may have drawn for a request that has ended meanwhile.
            if request_id not in self._told:
                continue
            likeliest = zip(tokens[index][:top], tops[index][:top], strict=True)
            self._told[request_id][place] = TokenLogprob(
                own[index], tuple(pair for pair in likeliest if pair[1] > -torch.inf)
            )

    def take(self, request_id: str, first: int, until: int) -> tuple[TokenLogprob, ...]:
        """Return those of the tokens at places from `first` up to `until`, and forget them; none
        for a request that does not want any.
        """
        told = self._told.get(request_id)
        if told is None:
            return ()
        return tuple(told.pop(place) for place in range(first, until))
