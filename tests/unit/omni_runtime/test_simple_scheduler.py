"""Payload in, payload out: batches, pools, and what becomes of aborted and failed items."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from omni_runtime.batching import BatchLimits
from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Admitted,
    Drain,
    NewRequest,
    RequestError,
    Result,
)
from omni_runtime.simple_scheduler import SimpleScheduler
from omni_wire.errors import InvalidRequest, StageFailed
from omni_wire.messages import Payload
from tests.support.patience import PATIENT_SECONDS
from tests.support.schedulers import DrivenScheduler, NotingOutbox
from tests.support.stage_events import key, payload


def double(item: Payload) -> Payload:
    assert isinstance(item.data, int)
    return replace(item, data=2 * item.data)


def new(name: str, data: Any = 1) -> NewRequest:
    return NewRequest(payload(name, data=data))


def test_a_request_is_admitted_and_then_answered() -> None:
    driven = DrivenScheduler(SimpleScheduler(double))
    driven.put(new("a", 21))
    assert [type(message) for message in driven.outbox.messages] == [Admitted, Result]
    assert driven.outbox.of(Result)[0].data == 42


def test_requests_in_one_batch_are_computed_together() -> None:
    batches = []

    def compute(items: Sequence[Payload]) -> list[Payload | Exception]:
        batches.append([item.key.request_id for item in items])
        return [double(item) for item in items]

    scheduler = SimpleScheduler(compute_batch=compute, limits=BatchLimits(max_size=2))
    driven = DrivenScheduler(scheduler)
    driven.put(new("a"), new("b"), new("c"))
    driven.finish()
    assert batches == [["a", "b"], ["c"]]


def test_an_exception_in_a_batch_result_fails_that_item_alone() -> None:
    def compute(items: Sequence[Payload]) -> list[Payload | Exception]:
        return [InvalidRequest("odd") if item.data == 1 else item for item in items]

    scheduler = SimpleScheduler(compute_batch=compute, limits=BatchLimits(max_size=8))
    driven = DrivenScheduler(scheduler)
    driven.put(new("a", 1), new("b", 2))
    assert [(error.key, type(error.error)) for error in driven.outbox.of(RequestError)] == [
        (key("a"), InvalidRequest)
    ]
    assert [result.key for result in driven.outbox.of(Result)] == [key("b")]


@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda items: 1 / 0, id="raises"),
        pytest.param(lambda items: items[:1], id="too few outcomes"),
    ],
)
def test_a_failed_batch_fails_its_items_and_the_stage_goes_on(compute: Any) -> None:
    scheduler = SimpleScheduler(compute_batch=compute, limits=BatchLimits(max_size=2))
    driven = DrivenScheduler(scheduler)
    driven.put(new("a"), new("b"))
    driven.put(new("c"), new("d"))
    errors = driven.outbox.of(RequestError)
    assert [error.key.request_id for error in errors] == ["a", "b", "c", "d"]
    assert all(isinstance(error.error, StageFailed) for error in errors)


def test_a_failing_cost_function_fails_its_request() -> None:
    def cost(item: Payload) -> float:
        raise InvalidRequest("no size")

    limits = BatchLimits(max_size=2)
    scheduler = SimpleScheduler(compute_batch=lambda items: items, limits=limits, cost=cost)
    driven = DrivenScheduler(scheduler)
    driven.put(new("a"))
    assert [type(message) for message in driven.outbox.messages] == [RequestError]


def test_a_waiting_request_is_aborted_at_once() -> None:
    limits = BatchLimits(max_size=2, max_wait_seconds=3600)
    driven = DrivenScheduler(SimpleScheduler(compute_batch=lambda items: items, limits=limits))
    driven.put(new("a"))
    driven.put(AbortRequest(key("a"), "left"))
    assert driven.outbox.messages == [Aborted(key("a"))]
    assert driven.scheduler.in_flight == 0  # type: ignore[attr-defined]


def test_draining_stops_waiting_for_company() -> None:
    limits = BatchLimits(max_size=2, max_wait_seconds=3600)
    driven = DrivenScheduler(SimpleScheduler(compute_batch=lambda items: items, limits=limits))
    driven.put(new("a"))
    assert driven.outbox.messages == []
    driven.put(Drain())
    assert [result.key for result in driven.outbox.of(Result)] == [key("a")]


def test_a_pool_computes_at_once_and_drops_what_was_aborted_meanwhile() -> None:
    together, go = threading.Barrier(3), threading.Event()

    def compute(item: Payload) -> Payload:
        together.wait(PATIENT_SECONDS)
        assert go.wait(PATIENT_SECONDS)
        return item

    scheduler = SimpleScheduler(compute, max_concurrency=2)
    outbox = NotingOutbox()
    thread = threading.Thread(target=scheduler.run, args=(outbox,))
    thread.start()
    scheduler.inbox.put(new("a"))
    scheduler.inbox.put(new("b"))
    together.wait(PATIENT_SECONDS)
    scheduler.inbox.put(AbortRequest(key("a"), "left"))
    scheduler.inbox.put(AbortRequest(key("unknown"), "left"))
    scheduler.inbox.put(new("c"))
    # The pool is full, so the loop takes this message only after the abort.
    while len(scheduler.inbox):
        threading.Event().wait(0.001)
    go.set()
    outbox.wait_for(lambda: bool(outbox.of(Aborted)) and bool(outbox.of(Result)))
    assert outbox.of(Aborted) == [Aborted(key("a"))]
    assert [result.key for result in outbox.of(Result)] == [key("b")]
    together.abort()
    outbox.wait_for(lambda: bool(outbox.of(RequestError)))
    scheduler.stop()
    thread.join(PATIENT_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({}, id="nothing to compute"),
        pytest.param({"compute": double, "compute_batch": list}, id="two ways to compute"),
        pytest.param({"compute_batch": list, "max_concurrency": 2}, id="pool of batches"),
        pytest.param({"compute": double, "limits": BatchLimits(max_size=2)}, id="batch of one"),
    ],
)
def test_contradicting_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="compute_batch"):
        SimpleScheduler(**arguments)
