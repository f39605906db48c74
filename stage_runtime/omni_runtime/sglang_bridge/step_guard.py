"""A step that raises fails the requests it was for, and the engine goes on.

SGLang lets an exception of the forward pass end its loop, and every request with it. Here the
batch gets a result that says nothing, and its rows are marked as aborted; SGLang's own processing
of results then releases what they hold, and none of it enters the prefix cache.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.managers.schedule_batch import FINISH_ABORT, ScheduleBatch
from sglang.srt.managers.utils import GenerationBatchResult

from omni_runtime.logging import EventLogger
from omni_wire.errors import StepFailed

logger = EventLogger(__name__)

Forward = Callable[..., GenerationBatchResult]

MOST_IN_A_ROW = 16
"""Steps that may fail without one that succeeds; after that the engine is taken for broken."""


class FailedStep(GenerationBatchResult):
    """Stands for the result of a step that raised."""


class StepGuard:
    """Decides which exceptions of a step are its requests' own.

    Args:
        device: of the model.
        ranks: tensor-parallel ranks. Where there are several, the others wait for this one inside
            a collective operation, so that nothing can be contained.
    """

    def __init__(self, device: torch.device, ranks: int) -> None:
        self._device = device
        self._ranks = ranks
        self._in_a_row = 0

    def guarded(self, forward: Forward) -> Forward:
        """Return a forward pass whose exceptions become failed steps."""

        def run(batch: ScheduleBatch, *args: object, **kwargs: object) -> GenerationBatchResult:
            try:
                result = forward(batch, *args, **kwargs)
            except Exception as error:
                return self.failed(batch, error)
            self._in_a_row = 0
            if result.delay_sample_func is not None:
                result.delay_sample_func = self._guarded_draw(batch, result)
            return result

        return run

    def _guarded_draw(
        self, batch: ScheduleBatch, result: GenerationBatchResult
    ) -> Callable[[], GenerationBatchResult]:
        """Return the draw that SGLang puts off, because of a grammar, until after the pass."""
        draw = result.delay_sample_func

        def run() -> GenerationBatchResult:
            try:
                draw()
            except Exception as error:
                result.next_token_ids = self.failed(batch, error).next_token_ids
            return result

        return run

    def failed(self, batch: ScheduleBatch, error: Exception) -> FailedStep:
        """Fail the requests of a batch. Called while the exception is handled.

        Raises:
            Exception: the same one, where the engine cannot go on.
        """
        self._in_a_row += 1
        if self._in_a_row > MOST_IN_A_ROW or self._ranks > 1 or is_broken(error, self._device):
            raise error
        logger.failure("a step failed, and its requests with it", error, requests=len(batch.reqs))
        message = f"a step for this request and {len(batch.reqs) - 1} others failed: {error!r}"
        for req in batch.reqs:
            if not req.finished():
                req.to_finish = FINISH_ABORT(message, err_type=StepFailed.reason)
                req.skip_radix_cache_insert = True
        return FailedStep(
            logits_output=LogitsProcessorOutput(next_token_logits=None),
            next_token_ids=torch.zeros(len(batch.reqs), dtype=torch.int64, device=self._device),
        )


def is_broken(error: Exception, device: torch.device) -> bool:
    """Return whether the device can do nothing more in this process."""
    if isinstance(error, torch.AcceleratorError):
        return True
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except Exception:  # whatever a device raises that is asked for nothing, it is lost
        return True
    return False
