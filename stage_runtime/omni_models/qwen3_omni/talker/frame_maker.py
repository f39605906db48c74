"""From one step of the talker to one frame per speaking row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from omni_models.qwen3_omni.talker.code_predictor import Frames
from omni_models.qwen3_omni.talker.prompt_rows import TalkerFacts
from omni_models.qwen3_omni.talker.speech import Speech
from omni_runtime.sglang_bridge.row_sampler import BatchRow
from omni_runtime.sglang_bridge.seeded_draw import DrawOptions, draw

if TYPE_CHECKING:
    from omni_models.qwen3_omni.talker.model import OmniTalker

_RESIDUAL_SALT = 0x5EED


@dataclass(slots=True)
class FrameMaker:
    """Edits the logits of code 0 and completes frames with the code predictor.

    Attributes:
        facts: of the checkpoint.
        model: the talker.
        suppressed: codec tokens that are never said, bool [vocabulary].
    """

    facts: TalkerFacts
    model: OmniTalker
    suppressed: torch.Tensor

    @classmethod
    def of(cls, facts: TalkerFacts, model: OmniTalker) -> FrameMaker:
        """Prepare for a loaded talker."""
        suppressed = torch.arange(facts.vocabulary) >= facts.codes
        suppressed[facts.eos] = False
        device = model.get_input_embeddings().weight.device
        return cls(facts, model, suppressed.to(device))

    def edit(
        self, logits: torch.Tensor, rows: Sequence[BatchRow], speeches: Sequence[Speech]
    ) -> torch.Tensor:
        """Return the logits code 0 is drawn from, float32 [rows, vocabulary].

        As in transformers: first the penalty on what was said, then what may never be said. A row
        whose prompt is not complete gets one possible token, which nobody hears.
        """
        edited = logits.clone()
        for index, speech in enumerate(speeches):
            penalty = speech.sampling.code.repetition_penalty
            if penalty != 1.0 and speech.said:
                said = torch.tensor(sorted(set(speech.said)), device=logits.device)
                score = edited[index, said]
                edited[index, said] = torch.where(score < 0, score * penalty, score / penalty)
        edited.masked_fill_(self.suppressed, -torch.inf)
        silent = [
            index
            for index, (row, speech) in enumerate(zip(rows, speeches, strict=True))
            if not speech.speaks(row.length)
        ]
        if silent:
            edited[silent] = -torch.inf
            edited[silent, self.facts.filler] = 0.0
        return edited

    def make(self, code: torch.Tensor, hidden: torch.Tensor, speeches: Sequence[Speech]) -> Frames:
        """Complete the frames that begin with `code`, one per speech.

        Args:
            code: int64 [rows].
            hidden: the talker's last hidden rows, [rows, hidden].
        """
        embedded = self.model.get_input_embeddings()(code)
        options = _residual_options(speeches, code.device)
        first = torch.tensor([len(speech.said) for speech in speeches], device=code.device)
        first = first * self.facts.groups

        def pick(number: int, logits: torch.Tensor) -> torch.Tensor:
            return draw(logits, options, first + number)

        frames: Frames = self.model.code_predictor(hidden, code, embedded, pick)
        return frames


def _residual_options(speeches: Sequence[Speech], device: torch.device) -> DrawOptions:
    sampling = [speech.sampling for speech in speeches]
    top_k = [it.residual_top_k for it in sampling]
    count = len(speeches)
    return DrawOptions(
        temperature=torch.ones(count, device=device),
        top_k=torch.tensor(top_k, device=device),
        top_p=torch.tensor([it.residual_top_p for it in sampling], device=device),
        min_p=torch.zeros(count, device=device),
        greedy=torch.tensor([it.code.greedy for it in sampling], device=device),
        seed=torch.tensor([speech.seed ^ _RESIDUAL_SALT for speech in speeches], device=device),
        most_top_k=max(top_k),
    )
