"""What becomes of a request, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omni_gateway.coordinator.events import (
    DrainStarted,
    Finished,
    Readable,
    SendAbort,
    StageFailed,
    Stopped,
    SubmitSent,
)
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.records import Phase
from omni_gateway.errors import TerminalsHookError
from omni_wire.errors import (
    DeadlineExceeded,
    Draining,
    FrameTooLarge,
    InstanceLost,
    QueueFull,
    RequestAborted,
    RequestExists,
    Unavailable,
)
from tests.support.coordination import World, speech_topology


@pytest.fixture
def world() -> World:
    return World().everything()


def test_a_request_goes_to_the_entry_stage_with_the_replicas_chosen_for_it(world: World) -> None:
    record = world.submit()

    (submit,) = world.submits
    assert submit.incarnation == world.front
    assert submit.payload.request is not None
    assert submit.payload.request.inputs == {"prompt": "hello"}
    assert submit.payload.deadline == record.deadline
    assert {stage: end.incarnation for stage, end in submit.payload.bindings.items()} == {
        "prepare": world.front,
        "think": world.thinker,
        "text": world.front,
        "voice": world.vocoder,
    }
    assert record.phase is Phase.RUNNING


def test_the_only_expected_terminal_gives_its_result_bare(world: World) -> None:
    record = world.submit(terminals=["text"])

    world.complete(record, "text", world.front, "hi")

    assert (record.phase, record.result) == (Phase.COMPLETED, "hi")


def test_several_expected_terminals_give_their_results_by_stage(world: World) -> None:
    record = world.submit()

    world.complete(record, "voice", world.vocoder, "pcm")
    assert record.phase is Phase.RUNNING
    world.complete(record, "text", world.front, "hi")

    assert record.result == {"text": "hi", "voice": "pcm"}


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param("text", id="a lone text"),
        pytest.param([], id="nothing"),
        pytest.param(["think"], id="a stage that is no terminal"),
        pytest.param(["text", "speech"], id="one name too many"),
        pytest.param([["text"]], id="no names at all"),
        pytest.param({"text": True}, id="a mapping"),
    ],
)
def test_terminals_that_make_no_sense_fail_their_request_alone(
    world: World, chosen: object
) -> None:
    with pytest.raises(TerminalsHookError, match="terminal_stages_fn"):
        world.submit("bad", chosen)

    assert not world.held("bad")
    assert world.submit("good").phase is Phase.RUNNING


def test_a_terminals_hook_that_raises_fails_its_request_alone() -> None:
    def hook(request: object) -> object:
        raise LookupError("no such modality")

    world = World(topology=replace(speech_topology(), terminals_hook=hook)).everything()

    with pytest.raises(TerminalsHookError, match="no such modality"):
        world.submit()
    assert world.state.requests.admission.in_flight == 0


def test_an_id_in_use_is_refused(world: World) -> None:
    world.submit()

    with pytest.raises(RequestExists):
        world.submit()


def test_the_request_above_the_limit_is_told_when_to_try_again() -> None:
    world = World(CoordinatorOptions(max_in_flight=2)).everything()
    first = world.submit("1", ["text"])
    world.submit("2", ["text"])

    with pytest.raises(QueueFull) as refused:
        world.submit("3", ["text"])
    assert refused.value.retry_after > 0

    world.complete(first, "text", world.front)
    assert world.submit("3", ["text"]).phase is Phase.RUNNING


def test_the_time_to_try_again_follows_the_pace_of_finished_requests() -> None:
    world = World(CoordinatorOptions(max_in_flight=1)).everything()
    for number in range(20):
        record = world.submit(str(number), ["text"])
        world.now += 4.0
        world.complete(record, "text", world.front)
    world.submit("last")

    with pytest.raises(QueueFull) as refused:
        world.submit("one more")
    assert refused.value.retry_after == pytest.approx(4.0, rel=0.1)


def test_a_submission_that_the_transport_refuses_leaves_nothing_behind(world: World) -> None:
    world.refuse_submits = FrameTooLarge("request of 9 GiB")

    record = world.submit()

    assert isinstance(record.error, FrameTooLarge)
    assert world.aborts == []
    world.leave()
    assert not world.held()


def test_a_caller_that_leaves_while_the_request_is_sent_has_it_aborted(world: World) -> None:
    world.hold_submits = True
    record = world.submit()
    assert record.phase is Phase.PENDING

    world.leave()

    assert {abort.incarnation for abort in world.aborts} == {
        world.front,
        world.thinker,
        world.vocoder,
    }
    world.feed(SubmitSent(record.key))
    world.acknowledge()
    assert not world.held()


def test_a_deadline_fails_the_request_and_stops_its_stages(world: World) -> None:
    record = world.submit(timeout=5.0)

    for _ in range(5):
        world.now += 0.9
        for replica in world.state.directory:
            replica.heard = world.now
        world.wait(0)
    assert record.phase is Phase.RUNNING
    world.now += 0.6
    world.wait(0)

    assert isinstance(record.error, DeadlineExceeded)
    assert len(world.aborts) == 3


def test_a_request_that_is_late_already_is_not_admitted(world: World) -> None:
    with pytest.raises(DeadlineExceeded):
        world.submit(timeout=0.0)

    assert not world.held()


def test_replicas_are_told_to_stop_before_the_reader_learns_the_end(world: World) -> None:
    record = world.submit()
    world.log.clear()

    world.fail(record, world.thinker)

    kinds = [type(step) for step in world.log]
    assert kinds == [SendAbort, SendAbort, SendAbort, Finished, Readable]


def test_the_first_failure_wins_and_comes_after_what_was_made_before(world: World) -> None:
    record = world.submit()
    made = world.chunk(record, "text", world.front)
    world.complete(record, "text", world.front, "hi")

    world.fail(record, world.thinker, "first")
    world.fail(record, world.vocoder, "second")
    world.complete(record, "voice", world.vocoder)

    assert record.phase is Phase.FAILED
    assert str(record.error) == "first"
    assert world.ends["r"] == [Phase.FAILED]
    assert record.results == {}
    assert world.read(record) == [made]
    assert world.released == {0: 1}
    assert world.state.requests.backlog.size_bytes == 0


def test_an_aborted_request_gives_its_reader_nothing_more(world: World) -> None:
    record = world.submit()
    world.chunk(record, "text", world.front)

    world.abort()

    assert not record.buffer
    assert world.released == {0: 1}


def test_what_a_failed_request_left_counts_as_unread_output() -> None:
    world = World(CoordinatorOptions(max_total_backlog_bytes=100)).everything()
    failed = world.submit("failed", ["text"])
    world.chunk(failed, "text", world.front, size=90)
    world.fail(failed, world.thinker, "first")
    current = world.submit("current", ["text"])

    world.chunk(current, "text", world.front, size=90)

    assert not failed.buffer
    assert str(failed.error) == "first"
    assert current.phase is Phase.RUNNING


def test_a_stage_that_reports_an_abort_ends_the_request_as_aborted(world: World) -> None:
    record = world.submit()

    world.feed(StageFailed(record.key, world.thinker, RequestAborted("dropped").info))

    assert record.phase is Phase.ABORTED


def test_a_result_of_a_terminal_that_is_not_expected_changes_nothing(world: World) -> None:
    record = world.submit(terminals=["text"])

    world.complete(record, "voice", world.vocoder, "pcm")

    assert record.phase is Phase.RUNNING
    assert record.results == {}


def test_a_second_result_of_a_stage_changes_nothing(world: World) -> None:
    record = world.submit()

    world.complete(record, "text", world.front, "first")
    world.complete(record, "text", world.front, "second")
    world.complete(record, "voice", world.vocoder, "pcm")
    world.complete(record, "voice", world.vocoder, "more")

    assert record.result == {"text": "first", "voice": "pcm"}
    assert world.ends["r"] == [Phase.COMPLETED]


def test_results_from_a_replica_that_does_not_serve_the_request_change_nothing(
    world: World,
) -> None:
    record = world.submit()
    stranger = world.up("vocoder")

    world.complete(record, "voice", stranger, "forged")
    world.fail(record, stranger)
    world.chunk(record, "voice", stranger)

    assert record.phase is Phase.RUNNING
    assert record.results == {}
    assert world.released == {0: 1}


def test_chunks_after_the_result_of_their_stage_are_not_delivered(world: World) -> None:
    record = world.submit()
    world.complete(record, "text", world.front)

    world.chunk(record, "text", world.front)

    assert not record.buffer
    assert world.released == {0: 1}


def test_chunks_of_a_terminal_nobody_waits_for_return_their_credit(world: World) -> None:
    record = world.submit(terminals=["text"])

    world.chunk(record, "voice", world.vocoder)
    world.complete(record, "text", world.front)
    world.chunk(record, "voice", world.vocoder)

    assert world.released == {0: 1, 1: 1}


def test_chunks_of_all_terminals_come_in_order_of_arrival(world: World) -> None:
    record = world.submit()
    sent = [
        world.chunk(record, "text", world.front),
        world.chunk(record, "voice", world.vocoder),
        world.chunk(record, "text", world.front),
    ]

    assert world.read(record) == sent
    assert world.released == {0: 1, 1: 1, 2: 1}


def test_a_finished_stream_can_be_read_to_its_end(world: World) -> None:
    record = world.submit(terminals=["text"])
    sent = world.chunk(record, "text", world.front)
    world.complete(record, "text", world.front, "hi")

    assert world.read(record) == [sent]
    assert record.result == "hi"


def test_an_id_stays_reserved_until_every_replica_confirmed_the_abort(world: World) -> None:
    record = world.submit()
    world.abort()
    world.leave()
    assert world.ends["r"] == [Phase.ABORTED]

    with pytest.raises(RequestExists):
        world.submit()
    world.acknowledge()

    assert world.submit().key != record.key


def test_an_id_stays_reserved_while_its_reader_is_there(world: World) -> None:
    record = world.submit(terminals=["text"])
    world.complete(record, "text", world.front)

    with pytest.raises(RequestExists):
        world.submit()
    world.leave()

    assert world.submit().phase is Phase.RUNNING


def test_aborting_again_sends_nothing_more(world: World) -> None:
    world.submit()

    world.abort()
    world.abort()
    world.leave()

    assert len(world.aborts) == 3
    assert world.ends["r"] == [Phase.ABORTED]


def test_an_abort_after_the_end_changes_nothing(world: World) -> None:
    record = world.submit(terminals=["text"])
    world.complete(record, "text", world.front, "hi")

    world.abort()

    assert record.phase is Phase.COMPLETED
    assert world.aborts == []


def test_what_comes_for_an_earlier_life_of_an_id_does_not_reach_the_next(world: World) -> None:
    old = world.submit(terminals=["text"])
    world.abort()
    world.leave()
    world.acknowledge()
    new = world.submit(terminals=["text"])

    world.chunk(old, "text", world.front)
    world.complete(old, "text", world.front, "old")
    world.fail(old, world.front)

    assert new.phase is Phase.RUNNING
    assert not new.buffer


def test_a_reader_that_leaves_gives_back_what_it_did_not_read(world: World) -> None:
    record = world.submit(terminals=["text"])
    world.chunk(record, "text", world.front)
    world.complete(record, "text", world.front)

    world.leave()

    assert world.released == {0: 1}
    assert world.state.requests.backlog.size_bytes == 0
    assert not world.held()


def test_a_draining_gateway_finishes_what_it_has_and_takes_nothing_new(world: World) -> None:
    record = world.submit(terminals=["text"])

    world.feed(DrainStarted())

    with pytest.raises(Draining):
        world.submit("late")
    world.complete(record, "text", world.front, "hi")
    assert record.phase is Phase.COMPLETED


def test_a_stopped_gateway_fails_everything(world: World) -> None:
    records = [world.submit("a"), world.submit("b")]

    world.feed(Stopped(Draining("too late").info))

    assert [type(record.error) for record in records] == [Draining, Draining]
    with pytest.raises(Draining):
        world.submit("c")


def test_a_request_waits_for_a_replica_that_comes_back() -> None:
    world = World()
    world.up("front")
    world.up("thinker")
    world.submit()
    assert world.phase() is Phase.PENDING

    world.up("vocoder")

    assert world.phase() is Phase.RUNNING
    assert len(world.submits) == 1


def test_waiting_requests_are_served_in_order_of_arrival() -> None:
    world = World()
    for name in "abc":
        world.submit(name)

    world.everything()

    assert [submit.payload.key.request_id for submit in world.submits] == ["a", "b", "c"]


def test_a_request_that_waited_too_long_is_told_which_stage_is_missing() -> None:
    world = World(CoordinatorOptions(route_wait_seconds=3.0, lease_seconds=100.0))
    world.up("front")
    world.up("thinker")
    record = world.submit()

    world.wait(3.0)

    assert isinstance(record.error, Unavailable)
    assert "vocoder" in str(record.error)
    assert world.aborts == []


def test_more_requests_than_may_wait_are_refused() -> None:
    world = World(CoordinatorOptions(max_waiting=1))
    world.submit("a")

    with pytest.raises(Unavailable):
        world.submit("b")
    world.leave("a")

    assert world.submit("b").phase is Phase.PENDING


def test_a_waiting_request_that_is_left_was_never_sent() -> None:
    world = World()
    world.submit()

    world.leave()
    world.everything()

    assert world.submits == []
    assert not world.held()


def test_a_lost_replica_fails_only_requests_that_need_it(world: World) -> None:
    second = world.up("vocoder")
    records = [world.submit(str(number)) for number in range(4)]
    bound = {one.request_id: one.bound_to(second) for one in records}

    world.lose(second)

    for record in records:
        assert record.phase is (Phase.FAILED if bound[record.request_id] else Phase.RUNNING)
    assert sum(bound.values()) == 2


def test_a_request_for_text_survives_the_vocoder(world: World) -> None:
    record = world.submit(terminals=["text"])

    world.lose(world.vocoder)
    assert record.phase is Phase.RUNNING

    assert world.submit("next", ["text"]).phase is Phase.RUNNING


@pytest.mark.parametrize(("chunks", "read"), [(0, False), (1, False), (1, True)])
def test_a_lost_request_says_whether_its_client_gets_anything(
    world: World, chunks: int, read: bool
) -> None:
    record = world.submit()
    for _ in range(chunks):
        world.chunk(record, "text", world.front)
    if read:
        world.read(record)

    world.lose(world.thinker)

    assert isinstance(record.error, InstanceLost)
    assert record.error.info.retryable
    assert record.error.details["delivered"] == str(chunks > 0).lower()


def test_an_abort_does_not_wait_for_a_replica_that_died(world: World) -> None:
    world.submit()
    world.leave()
    waiting_for = world.aborts.pop()
    world.acknowledge()
    assert world.held()

    world.lose(waiting_for.incarnation)

    assert not world.held()


def test_a_request_can_start_anew_when_nothing_was_delivered() -> None:
    world = World(CoordinatorOptions(max_resubmits=1)).everything()
    spare = world.up("vocoder")
    record = world.submit()
    first_key = record.key
    world.chunk(record, "text", world.front)

    world.lose(spare if record.bound_to(spare) else world.vocoder)

    assert record.phase is Phase.RUNNING
    assert record.key.epoch > first_key.epoch
    assert world.submits[-1].payload.key == record.key
    assert world.submits[-1].payload.request is not None
    assert {abort.key for abort in world.aborts} == {first_key}
    assert world.released == {0: 1}
    assert not record.buffer


def test_a_request_does_not_start_anew_once_its_client_saw_something() -> None:
    world = World(CoordinatorOptions(max_resubmits=1)).everything()
    world.up("vocoder")
    record = world.submit()
    world.chunk(record, "text", world.front)
    world.read(record)

    world.lose(world.thinker)

    assert record.phase is Phase.FAILED


def test_a_request_starts_anew_only_as_often_as_allowed() -> None:
    world = World(CoordinatorOptions(max_resubmits=1)).everything()
    record = world.submit()
    world.lose(world.thinker)
    assert world.phase() is Phase.PENDING
    thinker = world.up("thinker")
    assert world.phase() is Phase.RUNNING

    world.lose(thinker)

    assert isinstance(record.error, InstanceLost)


def test_a_resubmitted_request_keeps_its_deadline() -> None:
    options = CoordinatorOptions(max_resubmits=1, lease_seconds=1000.0)
    world = World(options).everything()
    record = world.submit(timeout=20.0)
    world.now += 15.0
    world.lose(world.thinker)
    world.up("thinker")

    world.wait(5.0)

    assert isinstance(record.error, DeadlineExceeded)


def test_the_longest_idle_reader_loses_its_stream_when_memory_is_full() -> None:
    world = World(CoordinatorOptions(max_total_backlog_bytes=100)).everything()
    stalled, reading, third = (world.submit(name) for name in ("stalled", "reading", "third"))
    world.chunk(stalled, "text", world.front, size=40)
    world.chunk(reading, "text", world.front, size=40)
    world.chunk(stalled, "text", world.front, size=10)
    world.read(reading)
    world.chunk(reading, "text", world.front, size=40)

    world.chunk(third, "text", world.front, size=40)

    assert stalled.error is not None
    assert stalled.error.info.reason == "SLOW_READER"
    assert len(reading.buffer) == len(third.buffer) == 1
    assert world.state.requests.backlog.size_bytes == 80
    assert world.released == {0: 1, 1: 1, 2: 1}


def test_results_nobody_fetches_count_as_unread_output() -> None:
    world = World(CoordinatorOptions(max_total_backlog_bytes=100)).everything()
    forgotten = world.submit("forgotten", ["text"])
    world.complete(forgotten, "text", world.front, "x" * 90, size=90)
    current = world.submit("current", ["text"])

    world.complete(current, "text", world.front, "y" * 90, size=90)

    assert forgotten.result is None
    assert forgotten.error is not None
    assert current.result == "y" * 90


def test_a_chunk_too_large_for_any_memory_fails_its_own_request() -> None:
    world = World(CoordinatorOptions(max_total_backlog_bytes=100)).everything()
    record = world.submit()

    world.chunk(record, "text", world.front, size=101)

    assert record.phase is Phase.FAILED
    assert world.state.requests.backlog.size_bytes == 0


def test_finished_requests_leave_no_deadline_behind() -> None:
    world = World(CoordinatorOptions(max_in_flight=4)).everything()

    for number in range(5000):
        record = world.submit(str(number), ["text"], timeout=3600.0)
        world.complete(record, "text", world.front)
        world.leave(str(number))

    assert len(world.state.requests.deadlines) < 200
