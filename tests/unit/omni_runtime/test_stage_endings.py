"""How requests end at a stage: by abort, failure, loss, deadline or drain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    RequestError,
    Result,
)
from omni_runtime.stage_events import (
    AbortAsked,
    AbortPeer,
    Acknowledge,
    DrainExpired,
    DrainStarted,
    GatewayLost,
    GatewayPeer,
    PeerLost,
    TimePassed,
)
from omni_wire.errors import InstanceLost, InvalidRequest
from omni_wire.messages import (
    Abort,
    Failed,
    StepFrame,
    StreamDone,
)
from tests.support.stage_events import (
    GATEWAY,
    endpoint,
    frame,
    key,
    middle_stage,
    payload,
    step_output,
)

GATEWAY_PEER = GatewayPeer(GATEWAY)
NEXT = endpoint("next")


def test_an_abort_is_acknowledged_when_the_scheduler_is_free() -> None:
    s = middle_stage()
    receipt = s.submit(payload())
    s.make(step_output("a"))
    s.happen(AbortAsked(key(), "left"))
    assert receipt.returned == [key()]
    assert s.scheduled[-1] == AbortRequest(key(), "left")
    assert s.asked(AbortPeer) == [AbortPeer(NEXT, key(), "left")]
    assert s.asked(Acknowledge) == []
    s.make(step_output("a"))
    s.make(Aborted(key()))
    assert s.asked(Acknowledge) == [Acknowledge(key())]
    assert len([m for m in s.sent(NEXT) if isinstance(m, StepFrame)]) == 1
    assert s.state.in_flight == 0


def test_a_result_that_crosses_an_abort_is_dropped_and_acknowledges_it() -> None:
    s = middle_stage()
    s.submit(payload())
    s.happen(AbortAsked(key(), "left"))
    s.make(Result(key(), "data"))
    assert s.sent(NEXT) == []
    assert s.asked(Acknowledge) == [Acknowledge(key())]


@pytest.mark.parametrize("times", [1, 2])
def test_an_abort_of_an_unknown_request_is_acknowledged_and_keeps_it_out(times: int) -> None:
    s = middle_stage()
    for _ in range(times):
        s.happen(AbortAsked(key(), "left"))
    assert s.asked(Acknowledge) == [Acknowledge(key())] * times
    assert s.deliver(payload(source="up")).returned == [key()]
    assert s.scheduled == []


def test_an_abort_on_an_edge_ends_the_request_without_telling_the_gateway() -> None:
    s = middle_stage()
    s.submit(payload())
    s.deliver(Abort(key(), "upstream failed"))
    assert s.scheduled[-1] == AbortRequest(key(), "upstream failed")
    assert s.sent(GATEWAY_PEER) == []
    s.make(Aborted(key()))
    assert s.asked(Acknowledge) == []


def test_a_failure_reaches_the_gateway_and_the_peers() -> None:
    s = middle_stage()
    s.submit(payload())
    s.make(step_output("a"))
    s.make(RequestError(key(), InvalidRequest("bad")))
    assert s.failures == ["INVALID_REQUEST"]
    assert s.asked(AbortPeer) == [AbortPeer(NEXT, key(), "bad")]
    assert s.state.in_flight == 0


def test_a_lost_instance_fails_the_requests_bound_to_it() -> None:
    s = middle_stage()
    s.submit(payload("a"))
    s.submit(replace(payload("b"), bindings={"next": endpoint("next", 2)}))
    s.happen(PeerLost(NEXT, InstanceLost("gone")))
    (failed,) = s.sent(GATEWAY_PEER)
    assert isinstance(failed, Failed)
    assert failed.key == key("a")
    assert failed.error.retryable


def test_requests_of_a_lost_gateway_end_without_a_word_to_it() -> None:
    s = middle_stage()
    s.submit(payload())
    s.happen(GatewayLost(GATEWAY))
    assert s.scheduled[-1] == AbortRequest(key(), "the gateway is gone")
    assert s.sent(GATEWAY_PEER) == []


def test_a_request_fails_at_its_deadline_wherever_it_is() -> None:
    s = middle_stage()
    s.submit(payload(deadline=5.0))
    assert s.state.next_due() == 5.0
    s.now = 4.9
    s.happen(TimePassed())
    assert s.failures == []
    s.now = 5.0
    s.happen(TimePassed())
    assert s.failures == ["DEADLINE_EXCEEDED"]
    assert isinstance(s.scheduled[-1], AbortRequest)
    assert s.state.next_due() is None


def test_a_silent_upstream_times_out_from_its_last_word() -> None:
    s = middle_stage(input_timeout_seconds=10.0)
    s.submit(payload())
    s.now = 8.0
    s.deliver(frame("up", ("a", 0)))
    s.now = 12.0
    s.happen(TimePassed())
    assert s.failures == []
    assert s.state.next_due() == 18.0
    s.now = 18.0
    s.happen(TimePassed())
    assert s.failures == ["STAGE_INPUT_TIMEOUT"]


def test_a_long_computation_is_no_silent_upstream() -> None:
    s = middle_stage(input_timeout_seconds=10.0)
    s.submit(payload())
    s.deliver(frame("up", ("a", 0)))
    s.deliver(StreamDone(key(), "up", 1))
    for s.now in (11.0, 25.0, 100.0):
        s.happen(TimePassed())
    assert s.failures == []
    assert s.state.in_flight == 1


def test_draining_refuses_new_requests_and_finishes_bound_ones() -> None:
    s = middle_stage()
    s.submit(payload("a"))
    s.happen(DrainStarted())
    s.submit(payload("b"))
    s.deliver(payload("c", source="up"))
    s.make(Result(key("a"), "data"))
    assert s.failures == ["DRAINING"]
    s.happen(DrainExpired())
    assert s.failures == ["DRAINING", "DRAINING"]
