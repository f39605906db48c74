"""What a stage promises, one event after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from omni_runtime.fan_in import FanInRule
from omni_runtime.routing import Routes
from omni_runtime.scheduler import (
    Admitted,
    Chunks,
    NewRequest,
    Opened,
    Result,
    Resume,
    Stall,
    Taken,
)
from omni_runtime.stage_events import (
    AbortAsked,
    ForgetPeer,
    GatewayPeer,
    StallChanged,
    Unsendable,
)
from omni_wire.errors import FrameTooLarge
from omni_wire.messages import (
    Completed,
    Open,
    OutputFrame,
    Payload,
    RequestView,
    StepFrame,
    StreamDone,
)
from tests.support.stage_events import (
    GATEWAY,
    StageUnderTest,
    endpoint,
    frame,
    key,
    middle_stage,
    payload,
    step_output,
)

GATEWAY_PEER = GatewayPeer(GATEWAY)
NEXT = endpoint("next")


def terminal(**wiring: Any) -> StageUnderTest:
    return middle_stage(routes=Routes(), **wiring)


def test_credit_of_a_payload_returns_once_the_scheduler_has_it() -> None:
    s = middle_stage()
    receipt = s.submit(payload())
    assert [type(message) for message in s.scheduled] == [NewRequest]
    assert receipt.returned == []
    s.make(Admitted(key()))
    assert receipt.returned == [key()]


def test_credit_of_a_chunk_returns_once_it_is_used_and_row_by_row() -> None:
    s = middle_stage()
    s.submit(payload("a"))
    s.submit(payload("b"))
    receipt = s.deliver(frame("up", ("a", 0), ("b", 0)))
    s.make(Taken("up", (key("b"),)))
    assert receipt.returned == [key("b")]
    s.make(Taken("up", (key("a"),)))
    assert receipt.returned == [key("b"), key("a")]


def test_done_before_the_payload_is_remembered() -> None:
    s = middle_stage(fan_in=FanInRule(wait_for=("up",)))
    s.deliver(Open(key(), "up", {}))
    s.deliver(StreamDone(key(), "up@r0", 0))
    assert s.scheduled == []
    s.deliver(payload(source="up@r0"))
    assert [type(message) for message in s.scheduled] == [NewRequest, StreamDone]
    assert s.scheduled[1] == StreamDone(key(), "up", 0)


def test_chunk_before_the_payload_fails_where_it_is_not_declared() -> None:
    s = middle_stage()
    s.deliver(Open(key(), "up", {}))
    receipt = s.deliver(frame("up", ("a", 0)))
    assert s.failures == ["STAGE_FAILED"]
    assert receipt.returned == [key()]
    assert s.state.in_flight == 0


def test_chunk_and_done_before_the_payload_go_on_where_declared() -> None:
    s = middle_stage(early_chunks=True)
    s.deliver(Open(key(), "up", {}))
    s.deliver(frame("up", ("a", 0)))
    s.deliver(StreamDone(key(), "up", 1))
    assert [type(message) for message in s.scheduled] == [Chunks, StreamDone]


def test_rows_before_the_payload_are_introduced_by_the_request_once() -> None:
    view = RequestView({}, {"stop": ["end"]})
    s = middle_stage(early_chunks=True)
    s.deliver(Open(key(), "up", {}, request=view))
    s.deliver(frame("up", ("a", 0)))
    s.deliver(frame("up", ("a", 1)))
    assert [type(message) for message in s.scheduled] == [Opened, Chunks, Chunks]
    assert s.scheduled[0] == Opened(key(), view)


def test_a_sender_introduces_the_request_without_its_inputs() -> None:
    s = middle_stage(routes=Routes(next=("next",), stream_to=("next",)))
    s.submit(replace(payload(), request=RequestView({"media": b"large"}, {"seed": 1}, {"m": "x"})))
    s.make(step_output("a"))
    opened = next(message for message in s.sent(NEXT) if isinstance(message, Open))
    assert opened.request == RequestView({}, {"seed": 1}, {"m": "x"})


def entry(instance: str) -> dict[str, Any]:
    return {"instance": instance, "opened": 1.0, "first_output": None, "finished": 2.0}


def test_a_stage_adds_itself_to_the_timeline_of_a_request_that_has_one() -> None:
    s = middle_stage(fan_in=FanInRule(wait_for=("up", "side"), merge_fn=lambda all: all["up"]))
    for source in ("up", "side"):
        view = RequestView(metadata={"timeline": {source: entry(source)}, "other": 1})
        s.deliver(replace(payload(source=source), request=view))
        s.now += 1.0
    s.make(step_output("a"))
    s.now += 1.0
    s.make(Result(key(), None))
    sent = next(message for message in s.sent(NEXT) if isinstance(message, Payload))
    assert sent.request is not None
    assert sent.request.metadata == {
        "other": 1,
        "timeline": {
            "up": entry("up"),
            "side": entry("side"),
            "stage": {
                "instance": "stage@r1",
                "opened": 0.0,
                "first_output": 2.0,
                "finished": 3.0,
            },
        },
    }


def test_a_terminal_stage_tells_the_client_the_timeline_it_asked_for() -> None:
    s = terminal()
    s.submit(replace(payload(), request=RequestView(metadata={"timeline": {}})))
    s.make(Result(key(), {"text": "x"}))
    (completed,) = (message for message in s.sent(GATEWAY_PEER) if isinstance(message, Completed))
    assert isinstance(completed.result, dict)
    assert completed.result.keys() == {"text", "timeline"}


def test_no_timeline_is_kept_where_nobody_asks() -> None:
    s = terminal()
    s.submit(payload())
    s.make(Result(key(), {"text": "x"}))
    (completed,) = (message for message in s.sent(GATEWAY_PEER) if isinstance(message, Completed))
    assert completed.result == {"text": "x"}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([frame("up", ("a", 1))], id="gap"),
        pytest.param([frame("up", ("a", 0)), frame("up", ("a", 0))], id="twice"),
        pytest.param([frame("up", ("a", 0)), StreamDone(key(), "up", 2)], id="lost at the end"),
    ],
)
def test_a_stream_with_a_hole_fails_its_request(messages: list[Any]) -> None:
    s = middle_stage()
    s.submit(payload())
    for message in messages:
        s.deliver(message)
    assert s.failures == ["WIRE_FORMAT"]


def test_rows_of_ended_requests_are_given_back_and_skipped() -> None:
    s = middle_stage()
    s.submit(payload("a"))
    s.submit(payload("b"))
    s.happen(AbortAsked(key("a"), "left"))
    receipt = s.deliver(frame("up", ("a", 0), ("b", 0)))
    assert receipt.returned == [key("a")]
    (chunks,) = [message for message in s.scheduled if isinstance(message, Chunks)]
    assert chunks.indices == (1,)


def test_a_key_in_use_is_refused_and_so_is_one_that_ended() -> None:
    s = terminal()
    s.submit(payload())
    assert s.submit(payload()).returned == [key()]
    s.make(Result(key(), "done"))
    s.submit(payload())
    assert s.failures == ["REQUEST_EXISTS", "REQUEST_EXISTS"]
    assert [type(message) for message in s.scheduled] == [NewRequest]


def test_a_hook_that_raises_fails_its_request_only() -> None:
    def merge(payloads: Any) -> Any:
        raise ZeroDivisionError("no")

    s = middle_stage(fan_in=FanInRule(wait_for=("up",), merge_fn=merge))
    receipt = s.deliver(payload("a", source="up"))
    assert s.failures == ["STAGE_FAILED"]
    assert receipt.returned == [key("a")]


def test_a_peer_hears_open_rows_done_payload_in_this_order() -> None:
    s = middle_stage()
    s.submit(payload())
    s.make(step_output("a"))
    s.make(step_output("a"))
    s.make(Result(key(), "data"))
    sent = s.sent(NEXT)
    assert [type(message).__name__ for message in sent] == [
        "Open",
        "StepFrame",
        "StepFrame",
        "StreamDone",
        "Payload",
    ]
    assert [m.rows[0].chunk_id for m in sent if isinstance(m, StepFrame)] == [0, 1]
    assert sent[3] == StreamDone(key(), "stage@r1", 2)
    assert s.asked(ForgetPeer) == [ForgetPeer(NEXT, key())]
    assert s.state.in_flight == 0


def test_a_step_becomes_one_frame_per_instance() -> None:
    s = middle_stage()
    for name, replica in (("a", 1), ("b", 2), ("c", 1)):
        bindings = {"next": endpoint("next", replica)}
        s.submit(replace(payload(name), bindings=bindings))
    s.make(step_output("a", "b", "c"))
    (first,) = [m for m in s.sent(endpoint("next", 1)) if isinstance(m, StepFrame)]
    (second,) = [m for m in s.sent(endpoint("next", 2)) if isinstance(m, StepFrame)]
    assert [row.key for row in first.rows] == [key("a"), key("c")]
    assert np.asarray(first.columns["number"]).tolist() == [0, 2]
    assert np.asarray(second.columns["number"]).tolist() == [1]


def test_a_terminal_sends_rows_and_result_to_the_gateway() -> None:
    s = terminal()
    s.submit(payload())
    s.make(step_output("a", target=None))
    s.make(Result(key(), {"text": "hi"}))
    output, completed = s.sent(GATEWAY_PEER)
    assert isinstance(output, OutputFrame)
    assert output.modality == "audio"
    assert completed == Completed(key(), "stage@r1", {"text": "hi"})


@pytest.mark.parametrize("target", [None, "elsewhere"])
def test_rows_for_nobody_fail_their_requests(target: str | None) -> None:
    s = middle_stage()
    s.submit(payload())
    s.make(step_output("a", target=target))
    assert s.failures == ["STAGE_FAILED"]


def test_a_stage_missing_from_the_bindings_fails_the_request() -> None:
    s = middle_stage()
    s.submit(payload(bound=("other",)))
    s.make(Result(key(), "data"))
    assert s.failures == ["INSTANCE_LOST"]
    assert s.state.in_flight == 0


def test_a_failing_route_sends_nothing() -> None:
    def route(payload: Any) -> str:
        raise KeyError("x")

    s = middle_stage(routes=Routes(next=("next",), stream_to=("other",), route_fn=route))
    s.submit(payload())
    s.make(Result(key(), "data"))
    assert s.failures == ["STAGE_FAILED"]
    assert s.sent(NEXT) == s.sent(endpoint("other")) == []


def test_what_can_never_be_sent_fails_the_request_even_after_it_finished() -> None:
    s = middle_stage()
    s.submit(payload())
    s.make(Result(key(), "data"))
    s.happen(Unsendable(key(), FrameTooLarge("too large")))
    assert s.failures == ["FRAME_TOO_LARGE"]


def test_the_scheduler_hears_of_the_first_stall_and_the_last_resume() -> None:
    s = middle_stage()
    s.submit(payload())
    other = endpoint("other")
    for peer, stalled in ((NEXT, True), (other, True), (NEXT, False), (other, False)):
        s.happen(StallChanged(peer, key(), stalled))
    assert s.scheduled[1:] == [Stall(key()), Resume(key())]
