"""When a batch is closed, on a clock that the tests turn."""

from __future__ import annotations

import pytest

from omni_runtime.batching import BatchLimits, BatchQueue


def queue(limits: BatchLimits, *items: tuple[int, float]) -> BatchQueue[int]:
    """Return a queue of (item, arrival); an item costs its own value."""
    made: BatchQueue[int] = BatchQueue(limits, float)
    for item, now in items:
        made.add(item, now)
    return made


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        pytest.param(BatchLimits(max_size=2), [[1, 2], [3, 4]], id="size"),
        pytest.param(BatchLimits(max_size=9, max_cost=5), [[1, 2], [3], [4]], id="cost"),
        pytest.param(BatchLimits(max_size=9, max_cost=0.5), [[1], [2], [3], [4]], id="too dear"),
        pytest.param(BatchLimits(max_size=9), [[1, 2, 3, 4]], id="no wait takes what is there"),
    ],
)
def test_a_batch_ends_at_a_limit_and_order_is_kept(
    limits: BatchLimits, batches: list[list[int]]
) -> None:
    waiting = queue(limits, (1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0))
    assert [waiting.take(now=0.0) for _ in batches] == batches
    assert len(waiting) == 0


def test_a_batch_waits_for_company_from_its_first_item() -> None:
    waiting = queue(BatchLimits(max_size=4, max_wait_seconds=1.0), (1, 10.0), (2, 10.9))
    assert waiting.take(now=10.9) == []
    assert waiting.due_at() == 11.0
    assert waiting.take(now=11.0) == [1, 2]


def test_a_full_batch_does_not_wait() -> None:
    waiting = queue(BatchLimits(max_size=2, max_wait_seconds=1.0), (1, 10.0), (2, 10.1))
    assert waiting.take(now=10.1) == [1, 2]


def test_a_batch_at_its_cost_bound_does_not_wait() -> None:
    limits = BatchLimits(max_size=9, max_wait_seconds=1.0, max_cost=3)
    assert queue(limits, (1, 0.0), (2, 0.0)).take(now=0.0) == [1, 2]


def test_a_lone_item_need_not_wait_where_only_company_waits() -> None:
    limits = BatchLimits(max_size=4, max_wait_seconds=1.0, wait_from="company")
    assert queue(limits, (1, 0.0)).take(now=0.0) == [1]
    assert queue(limits, (1, 0.0), (2, 0.0)).take(now=0.0) == []


def test_draining_waits_for_nobody() -> None:
    waiting = queue(BatchLimits(max_size=4, max_wait_seconds=1.0), (1, 0.0))
    assert waiting.take(now=0.0, hurry=True) == [1]


def test_removed_items_are_in_no_batch() -> None:
    waiting = queue(BatchLimits(max_size=4), (1, 0.0), (2, 0.0), (3, 0.0))
    assert waiting.remove(lambda item: item == 2) == [2]
    assert waiting.take(now=0.0) == [1, 3]


@pytest.mark.parametrize("limits", [{"max_size": 0}, {"max_wait_seconds": -1.0}, {"max_cost": 0.0}])
def test_limits_without_sense_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        BatchLimits(**limits)  # type: ignore[arg-type]
