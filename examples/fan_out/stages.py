"""What the stages of the fan-out pipeline compute, as functions from payload to payload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from omni_runtime.batching import BatchLimits
from omni_runtime.scheduler import Scheduler
from omni_runtime.simple_scheduler import SimpleScheduler
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Payload
from omni_wire.trees import to_numpy


def make_split() -> Callable[[Payload], Payload]:
    """Turn `inputs.numbers` into an array; the request travels on without its inputs."""
    return split


def make_total() -> Callable[[Payload], Payload]:
    """Add the numbers up."""
    return lambda payload: replace(payload, data=float(_numbers(payload).sum()))


def make_largest(max_batch_size: int = 8, max_batch_wait_ms: int = 0) -> Scheduler:
    """Find the largest number, several requests in one batch.

    Args:
        max_batch_size: most requests in a batch.
        max_batch_wait_ms: milliseconds a batch waits for company.
    """

    def largest(payloads: Sequence[Payload]) -> list[Payload | Exception]:
        return [_largest(payload) for payload in payloads]

    return SimpleScheduler(
        compute_batch=largest,
        limits=BatchLimits(max_batch_size, max_batch_wait_ms / 1000),
    )


def make_join() -> Callable[[Payload], Payload]:
    """Answer with what the sides found; `merge` has gathered it."""
    return lambda payload: payload


def split(payload: Payload) -> Payload:
    """Return the numbers as an array. Raises InvalidRequest when there are none."""
    numbers = payload.request.inputs.get("numbers") if payload.request is not None else None
    if not isinstance(numbers, Sequence) or isinstance(numbers, str):
        raise InvalidRequest("inputs.numbers must be a list of numbers")
    request = None if payload.request is None else replace(payload.request, inputs={})
    return replace(payload, data=np.asarray(numbers, np.float64), request=request)


def _largest(payload: Payload) -> Payload | Exception:
    numbers = _numbers(payload)
    if numbers.size == 0:
        return InvalidRequest("the largest of no numbers is asked for")
    return replace(payload, data=float(numbers.max()))


def _numbers(payload: Payload) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray(to_numpy(payload.data), np.float64)
