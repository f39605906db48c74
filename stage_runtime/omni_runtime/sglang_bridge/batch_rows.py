"""Rows of SGLang's batches: taking some out, and describing them to the sampler."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING

from omni_runtime.sglang_bridge.row_sampler import BatchRow

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch


def split_rows(batch: ScheduleBatch, indices: list[int]) -> ScheduleBatch:
    """Take rows out of a batch and return them as a batch of their own."""
    taken = set(indices)
    rest = [index for index in range(len(batch.reqs)) if index not in taken]
    held = copy.copy(batch)
    # Filtering rewrites fields of both, so they may not share the object that holds them.
    held.sampling_info = copy.copy(batch.sampling_info)
    held.filter_batch(keep_indices=indices)
    batch.filter_batch(keep_indices=rest)
    return held


def batch_rows(batch: ScheduleBatch) -> list[BatchRow]:
    """Return what the sampler must know of the rows of a batch about to run."""
    if batch.forward_mode.is_extend():
        last = list(itertools.accumulate(batch.extend_lens))
        lengths = [req.extend_end for req in batch.reqs]
    else:
        last = list(range(1, len(batch.reqs) + 1))
        lengths = batch.seq_lens_cpu.tolist()
    return [
        BatchRow(req.rid, len(req.origin_input_ids), req.output_ids, length, end - 1)
        for req, length, end in zip(batch.reqs, lengths, last, strict=True)
    ]
