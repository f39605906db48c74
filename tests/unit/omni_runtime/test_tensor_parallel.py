"""Ranks apply the same messages before the same step, and notice each other's end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from examples.two_level_stream.stages import make_speaker
from omni_runtime.rank_messages import PassDecoder, PassEncoder
from omni_runtime.scheduler import (
    AbortRequest,
    Chunks,
    Drain,
    InboxMessage,
    NewRequest,
    Opened,
    Resume,
    Stall,
    StepOutput,
)
from omni_runtime.tensor_parallel import (
    FollowerInbox,
    LeaderInbox,
    RankChannel,
    RankLost,
    RankSettings,
)
from omni_wire.messages import Payload, RequestView, StreamDone
from omni_wire.tensor import NumpyArray
from omni_wire.trees import to_numpy
from tests.support.patience import PATIENT_SECONDS
from tests.support.schedulers import NotingOutbox
from tests.support.stage_events import frame, key, payload

MESSAGES: list[InboxMessage] = [
    Opened(key("b"), RequestView(params={"n": 1})),
    NewRequest(payload("a", data={"rows": np.arange(6.0).reshape(2, 3)})),
    Chunks("writer", frame("writer@r1", ("a", 0), ("b", 0)), (1,)),
    Stall(key("a")),
    Resume(key("a")),
    StreamDone(key("a"), "writer", 1),
    AbortRequest(key("b"), "the client left"),
    Drain(),
]


@pytest.fixture
def address() -> Iterator[str]:
    with TemporaryDirectory(prefix="omni") as directory:
        yield f"unix:{Path(directory, 'rank1.sock')}"


def rows_in(it: Payload) -> NumpyArray:
    """Return the array in a payload's data."""
    data = to_numpy(it.data)
    assert isinstance(data, dict)
    return np.asarray(data["rows"])


def joined(address: str) -> tuple[RankChannel, FollowerInbox]:
    """Return rank 0's channel and rank 1's inbox once they have met."""
    follower = FollowerInbox(address)
    channel = RankChannel([address], RankSettings(nccl_port=4711))
    thread = threading.Thread(target=channel.join)
    thread.start()
    assert follower.join() == RankSettings(nccl_port=4711)
    thread.join()
    return channel, follower


def test_a_pass_comes_out_as_it_went_in() -> None:
    decoded = PassDecoder().decode(PassEncoder().encode(MESSAGES))
    assert [type(message) for message in decoded] == [type(message) for message in MESSAGES]
    for before, after in zip(MESSAGES, decoded, strict=True):
        match before, after:
            case NewRequest(sent), NewRequest(got):
                assert (got.key, got.bindings) == (sent.key, sent.bindings)
                assert np.array_equal(rows_in(got), rows_in(sent))
            case Chunks(source, sent_frame, indices), Chunks(got_source, got_frame, got_indices):
                assert (got_source, got_indices) == (source, indices)
                assert list(got_frame.rows) == list(sent_frame.rows)
            case Opened(), Opened():
                assert (after.key, after.request.params) == (before.key, before.request.params)
            case _:
                assert after == before


def test_every_rank_takes_the_same_steps(address: str) -> None:
    channel, inbox = joined(address)
    leader, follower = make_speaker(), make_speaker()
    leader.inbox, follower.inbox = LeaderInbox(channel), inbox
    inbox.on_stop(follower.stop)
    outboxes = NotingOutbox(), NotingOutbox()
    threads = [
        threading.Thread(target=scheduler.run, args=(outbox,))
        for scheduler, outbox in zip((leader, follower), outboxes, strict=True)
    ]
    for thread in threads:
        thread.start()
    leader.inbox.put(NewRequest(payload("a", bound=("sound",))))
    for chunk_id in range(20):
        names = ("a",) if chunk_id % 3 else ("a", "b")
        rows = [(name, chunk_id if name == "a" else chunk_id // 3) for name in names]
        leader.inbox.put(Chunks("writer", frame("writer", *rows), tuple(range(len(rows)))))
    leader.inbox.put(AbortRequest(key("b"), "the client left"))
    leader.inbox.put(StreamDone(key("a"), "writer", 20))
    for outbox in outboxes:
        outbox.wait_for(lambda outbox=outbox: len(rows_of(outbox, "a")) == 20)  # type: ignore[misc]
    leader.stop()
    threads[0].join(PATIENT_SECONDS)
    leader.inbox.close()
    threads[1].join(PATIENT_SECONDS)
    steps = [
        [(output.step, output.keys) for output in outbox.of(StepOutput)] for outbox in outboxes
    ]
    assert steps[0] == steps[1]
    inbox.close()


def rows_of(outbox: NotingOutbox, name: str) -> list[int]:
    """Return the steps in which a request had a row."""
    return [output.step for output in outbox.of(StepOutput) if key(name) in output.keys]


def test_rank_0_notices_a_lost_rank_while_idle(address: str) -> None:
    channel, follower = joined(address)
    leader = LeaderInbox(channel)
    follower.close()
    assert leader.wait(timeout_seconds=PATIENT_SECONDS)
    with pytest.raises(RankLost, match="rank 1"):
        leader.drain()
    leader.close()


def test_a_rank_notices_the_loss_of_rank_0(address: str) -> None:
    channel, follower = joined(address)
    leader = LeaderInbox(channel)
    leader.drain()
    assert follower.drain() == []
    stopped = threading.Event()
    follower.on_stop(stopped.set)
    leader.close()
    assert follower.drain() == []
    assert stopped.is_set()
    with pytest.raises(RankLost, match="rank 0"):
        follower.drain()
    follower.close()


def test_a_rank_that_never_comes_is_reported(address: str) -> None:
    channel = RankChannel([address], RankSettings(nccl_port=1))
    with pytest.raises(RankLost, match="did not join"):
        channel.join(timeout_seconds=0.01)
    channel.close()
