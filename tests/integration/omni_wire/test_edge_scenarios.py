"""What a stage may rely on, whatever carries its messages: in process, gRPC or shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from omni_wire.errors import ErrorInfo, WireFormatError
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import (
    Abort,
    EdgeMessage,
    Open,
    Payload,
    RequestView,
    Row,
    StepFrame,
    StreamDone,
    StreamError,
)
from omni_wire.trees import to_numpy
from tests.support.edges import KINDS, REMOTE_KINDS, SMALL, Recorder, connected

A, B, C = (RequestKey("gateway", name) for name in "abc")

every_kind = pytest.mark.parametrize("kind", KINDS)


def frame(step: int, *keys: RequestKey, width: int = 8) -> StepFrame:
    """One row per request; each row holds its step number."""
    rows = tuple(Row(key, step) for key in keys)
    return StepFrame("thinker", step, rows, {"hidden": np.full((len(keys), width), step, np.int64)})


def payload(key: RequestKey, items: int = 4) -> Payload:
    return Payload(key, "thinker", {"ids": np.arange(items, dtype=np.float32), "text": "ok"})


def script(key: RequestKey) -> list[EdgeMessage]:
    """Everything an edge carries about one request that starts on chunks."""
    bindings = {"talker": Endpoint("talker@r1", "dns:///talker:1", 22)}
    request = RequestView({"prompt": "hello"}, {"top_k": 3}, {"modalities": ["audio"]})
    return [
        Open(key, "thinker", bindings, deadline=None, request=request),
        frame(0, key),
        frame(1, key),
        StreamDone(key, "thinker", 2),
        payload(key),
    ]


def kinds_of(messages: Sequence[EdgeMessage]) -> list[str]:
    return [type(message).__name__ for message in messages]


@every_kind
async def test_every_message_arrives_as_it_was_posted(kind: str, tmp_path: Path) -> None:
    error = ErrorInfo("STAGE_FAILED", "no", retryable=True, stage="thinker", details={"a": "b"})
    messages = [*script(A), StreamError(B, "thinker", error)]
    async with connected(kind, tmp_path) as edge:
        for message in messages:
            edge.sender.post(message)
        await edge.receiver.count(len(messages))
    got = edge.receiver.messages
    assert kinds_of(got) == kinds_of(messages)
    assert got[0] == messages[0]
    assert got[3] == messages[3]
    assert got[5] == messages[5]
    chunk, whole = got[2], got[4]
    assert isinstance(chunk, StepFrame)
    assert isinstance(whole, Payload)
    assert (chunk.source, chunk.step, tuple(chunk.rows)) == ("thinker", 1, (Row(A, 1),))
    np.testing.assert_equal(to_numpy(chunk.columns), {"hidden": np.full((1, 8), 1, np.int64)})
    np.testing.assert_equal(
        to_numpy(whole.data), {"ids": np.arange(4, dtype=np.float32), "text": "ok"}
    )


@every_kind
async def test_each_request_keeps_its_order_however_two_are_interleaved(
    kind: str, tmp_path: Path
) -> None:
    turns = sorted(set(itertools.permutations("aaabbb")))
    async with connected(kind, tmp_path) as edge:
        posted = 0
        for number, turn in enumerate(turns):
            keys = {name: RequestKey("gateway", f"{name}{number}") for name in "ab"}
            lines = {name: iter(script(key)[1:4]) for name, key in keys.items()}
            for name in turn:
                edge.sender.post(next(lines[name]))
                posted += 1
        await edge.receiver.count(posted)
        for number, name in itertools.product(range(len(turns)), "ab"):
            about = edge.receiver.about(RequestKey("gateway", f"{name}{number}"))
            assert kinds_of(about) == ["StepFrame", "StepFrame", "StreamDone"]
        await edge.settled()


@every_kind
@pytest.mark.parametrize("boundary", range(6))
async def test_after_an_abort_nothing_of_the_request_arrives_or_is_kept(
    kind: str, boundary: int, tmp_path: Path
) -> None:
    receiver = Recorder(holds=lambda key: key == A)
    async with connected(kind, tmp_path, receiver=receiver) as edge:
        for message in script(A)[:boundary]:
            edge.sender.post(message)
        edge.sender.post(frame(0, B))
        await edge.sender.abort(A, "client left")
        seen = len(receiver.about(A))
        for message in script(A)[boundary:]:
            edge.sender.post(message)
        edge.sender.post(frame(1, A, B))
        await receiver.until(lambda: receiver.chunks(B) == [0, 1])
        assert isinstance(receiver.about(A)[-1], Abort)
        assert len(receiver.about(A)) == seen
        receiver.release_kept()
        await edge.settled()
        assert not edge.sender.stalled(A)
    assert edge.sender.held_bytes == 0


@every_kind
async def test_a_request_nobody_reads_holds_up_itself_alone(kind: str, tmp_path: Path) -> None:
    receiver = Recorder(holds=lambda key: key == A)
    async with connected(kind, tmp_path, receiver=receiver) as edge:
        for step in range(100):
            edge.sender.post(frame(step, A, width=1024))
        assert edge.sender.stalled(A)
        assert edge.reports.stalled() == {A: True}
        for step in range(40):
            edge.sender.post(frame(step, B, C, width=512))
            await receiver.until(lambda: len(receiver.chunks(B)) == step + 1)  # noqa: B023
        assert edge.reports.stalled()[A]
        assert edge.sender.unreleased_bytes < SMALL.edge_credit_bytes // 2
        receiver.holds = lambda key: False
        receiver.release_kept()
        await receiver.until(lambda: len(receiver.chunks(A)) == 100)
        await edge.settled()
        assert receiver.chunks(A) == list(range(100))
        assert not any(edge.reports.stalled().values())


@every_kind
async def test_many_stalled_requests_leave_room_for_others(kind: str, tmp_path: Path) -> None:
    stuck = {RequestKey("gateway", f"stuck-{number}") for number in range(32)}
    receiver = Recorder(holds=lambda key: key in stuck)
    async with connected(kind, tmp_path, receiver=receiver) as edge:
        for step, key in itertools.product(range(40), sorted(stuck)):
            edge.sender.post(frame(step, key, width=128))
        assert edge.sender.unreleased_bytes < SMALL.edge_credit_bytes
        for step in range(20):
            edge.sender.post(frame(step, A))
        await receiver.until(lambda: receiver.chunks(A) == list(range(20)))
        receiver.holds = lambda key: False
        receiver.release_kept()
        await receiver.until(lambda: all(len(receiver.chunks(key)) == 40 for key in stuck))
        await edge.settled()
    assert not any(edge.reports.stalled().values())


@every_kind
async def test_rows_of_a_step_wait_alone(kind: str, tmp_path: Path) -> None:
    receiver = Recorder(holds=lambda key: key == A)
    async with connected(kind, tmp_path, receiver=receiver) as edge:
        for step in range(100):
            edge.sender.post(frame(step, A, B, width=512))
        await receiver.until(lambda: receiver.chunks(B) == list(range(100)))
        assert edge.sender.stalled(A)
        assert not edge.sender.stalled(B)
        receiver.holds = lambda key: False
        receiver.release_kept()
        await receiver.until(lambda: receiver.chunks(A) == list(range(100)))
        await edge.settled()


@every_kind
async def test_chunks_of_others_overtake_a_large_payload(kind: str, tmp_path: Path) -> None:
    large = payload(A, items=200_000)
    async with connected(kind, tmp_path) as edge:
        edge.sender.post(frame(0, C))
        await edge.receiver.count(1)
        edge.sender.post(large)
        edge.sender.post(StreamDone(A, "thinker", 0))
        for step in range(3):
            edge.sender.post(frame(step, B))
        await edge.receiver.until(lambda: len(edge.receiver.about(A)) == 2)
        await edge.settled()
    whole, done = edge.receiver.about(A)
    assert isinstance(whole, Payload)
    np.testing.assert_equal(to_numpy(whole.data), to_numpy(large.data))
    assert isinstance(done, StreamDone)
    if kind == "grpc":
        # In 49 parts; the others needed only to wait for one.
        assert edge.receiver.messages.index(whole) > 3


@every_kind
async def test_a_step_larger_than_a_message_arrives_in_rows(kind: str, tmp_path: Path) -> None:
    keys = [RequestKey("gateway", f"{number}") for number in range(12)]
    async with connected(kind, tmp_path) as edge:
        edge.sender.post(frame(5, *keys, width=2048))
        await edge.receiver.until(lambda: all(edge.receiver.chunks(key) for key in keys))
        await edge.settled()
    for message in edge.receiver.messages:
        assert isinstance(message, StepFrame)
        columns = to_numpy(message.columns)
        np.testing.assert_equal(columns, {"hidden": np.full((len(message.rows), 2048), 5)})


@pytest.mark.parametrize("kind", REMOTE_KINDS)
async def test_a_message_that_cannot_be_sent_is_refused_by_its_place(
    kind: str, tmp_path: Path
) -> None:
    async with connected(kind, tmp_path) as edge:
        with pytest.raises(WireFormatError, match=r"data\.a\[1\]: set cannot be sent"):
            edge.sender.post(Payload(A, "thinker", {"a": [1, {2}]}))  # type: ignore[list-item]
        edge.sender.post(frame(0, A))
        await edge.receiver.count(1)
