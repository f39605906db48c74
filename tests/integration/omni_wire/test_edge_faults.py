"""What happens to an edge when its stream breaks, its peer dies, or another takes its place."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from omni_wire.credentials import Plaintext
from omni_wire.errors import Draining, InstanceLost, StaleIncarnation, VersionMismatch
from omni_wire.grpc_edge import GrpcEdgeSender
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import Payload, Row, StepFrame, StreamDone
from omni_wire.trees import to_numpy
from omni_wire.wire_version import WIRE_VERSION, Versions
from tests.support.edges import (
    REMOTE_KINDS,
    SMALL,
    SOURCE,
    Recorder,
    Reports,
    connected,
    hosted,
    running,
)
from tests.support.links import Faults, FaultyLink

A, B = RequestKey("gateway", "a"), RequestKey("gateway", "b")
CHUNKS = 8
IMPATIENT = replace(SMALL, reconnect_seconds=0.2)

remote_kinds = pytest.mark.parametrize("kind", REMOTE_KINDS)


def frame(step: int, *keys: RequestKey, width: int = 8) -> StepFrame:
    rows = tuple(Row(key, step) for key in keys)
    return StepFrame("thinker", step, rows, {"hidden": np.full((len(keys), width), step, np.int64)})


def destination(directory: Path, incarnation: int = 22) -> Endpoint:
    return Endpoint("talker@r1", f"unix:{directory}/talker.sock", incarnation)


@remote_kinds
@pytest.mark.parametrize(
    "faults",
    [
        *(pytest.param(Faults(cut_before={n}), id=f"cut before {n}") for n in (0, 1, 4, 9)),
        *(pytest.param(Faults(cut_after={n}), id=f"cut after {n}") for n in (0, 1, 4, 9)),
        pytest.param(Faults(cut_before={1, 3}, cut_after={5, 8}), id="cut four times"),
        pytest.param(Faults(duplicate={0, 3, 9}), id="duplicates"),
        pytest.param(Faults(swap={2}), id="swapped"),
        pytest.param(Faults(lose_acknowledgements=True, cut_after={6}), id="acknowledgements lost"),
    ],
)
async def test_each_message_arrives_once_and_in_order(
    kind: str, faults: Faults, tmp_path: Path
) -> None:
    large = Payload(A, "thinker", {"embeddings": np.arange(60_000, dtype=np.float32)})
    async with connected(kind, tmp_path, faults=faults) as edge:
        for step in range(CHUNKS):
            edge.sender.post(frame(step, A, B, width=512))
        edge.sender.post(StreamDone(A, "thinker", CHUNKS))
        edge.sender.post(large)
        edge.sender.post(StreamDone(B, "thinker", CHUNKS))
        await edge.receiver.until(lambda: len(edge.receiver.about(A)) == CHUNKS + 2)
        await edge.receiver.until(lambda: len(edge.receiver.about(B)) == CHUNKS + 1)
        # What was said in lost acknowledgements is said again when the next stream begins.
        again = {edge.link.written} if faults.lose_acknowledgements else ()
        edge.link.faults = Faults(cut_before=again)
        edge.sender.post(frame(CHUNKS, B))
        await edge.receiver.until(lambda: len(edge.receiver.chunks(B)) == CHUNKS + 1)
        await edge.settled()
        assert not edge.receiver.lost
    assert edge.receiver.chunks(A) == list(range(CHUNKS))
    assert edge.receiver.chunks(B) == list(range(CHUNKS + 1))
    done, whole = edge.receiver.about(A)[CHUNKS:]
    assert done == StreamDone(A, "thinker", CHUNKS)
    assert isinstance(whole, Payload)
    np.testing.assert_equal(to_numpy(whole.data), to_numpy(large.data))
    breaks = [*faults.cut_before, *faults.cut_after, *faults.swap, *again]
    assert edge.link.streams == 1 + len(breaks)


@remote_kinds
async def test_credit_released_while_the_stream_was_broken_is_not_lost(
    kind: str, tmp_path: Path
) -> None:
    receiver = Recorder(holds=lambda key: True)
    async with connected(kind, tmp_path, receiver=receiver) as edge:
        edge.sender.post(frame(0, A, B, width=512))
        await receiver.count(1)
        edge.link.faults = Faults(lose_acknowledgements=True, cut_before={edge.link.written})
        _, release = receiver.kept[0]
        release(A)
        edge.sender.post(frame(1, A, width=512))
        await receiver.count(2)
        edge.link.faults = Faults()
        receiver.release_kept()
        await edge.settled()


@remote_kinds
async def test_an_abort_is_acknowledged_across_a_cut(kind: str, tmp_path: Path) -> None:
    async with connected(kind, tmp_path, faults=Faults(cut_before={1}, cut_after={2})) as edge:
        edge.sender.post(frame(0, A))
        await edge.receiver.count(1)
        await edge.sender.abort(A, "client left")
        assert [type(message).__name__ for message in edge.receiver.about(A)] == [
            "StepFrame",
            "Abort",
        ]


async def test_a_peer_that_never_comes_back_is_lost_and_waits_end(tmp_path: Path) -> None:
    reports = Reports()
    sender = GrpcEdgeSender(SOURCE, destination(tmp_path), Plaintext(), reports, IMPATIENT)
    async with running(sender):
        sender.post(frame(0, A))
        await sender.abort(B, "left")
        await sender.drain()
        assert isinstance(await reports.until_lost(), InstanceLost)
        sender.post(frame(1, A))
    assert len(reports.lost) == 1


async def test_a_sender_that_stays_away_is_lost_at_the_receiver(tmp_path: Path) -> None:
    receiver = Recorder()
    link = FaultyLink(Faults(cut_after={0}, cut_before=range(1, 1_000)))
    async with hosted(destination(tmp_path), receiver, IMPATIENT):
        sender = GrpcEdgeSender(
            SOURCE, destination(tmp_path), Plaintext(), Reports(), SMALL, wrap=link.wrap
        )
        running_sender = asyncio.create_task(sender.run())
        sender.post(frame(0, A))
        await receiver.count(1)
        running_sender.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running_sender
        await receiver.until(lambda: bool(receiver.lost))
    assert receiver.lost[0][0] == SOURCE
    assert isinstance(receiver.lost[0][1], InstanceLost)


async def test_an_edge_that_is_closed_ends_at_the_receiver_at_once(tmp_path: Path) -> None:
    receiver = Recorder()
    patient = replace(SMALL, reconnect_seconds=3_600.0)
    async with connected("grpc", tmp_path, receiver=receiver, options=patient) as edge:
        edge.sender.post(frame(0, A))
        await edge.sender.drain()
        await edge.sender.close()
        await receiver.until(lambda: bool(receiver.lost))
        assert receiver.chunks(A) == [0]


async def test_a_restarted_receiver_is_another_peer(tmp_path: Path) -> None:
    reports = Reports()
    sender = GrpcEdgeSender(SOURCE, destination(tmp_path), Plaintext(), reports, SMALL)
    first, second = Recorder(), Recorder()
    async with running(sender):
        async with hosted(destination(tmp_path), first, crash=True):
            sender.post(frame(0, A))
            await first.count(1)
        async with hosted(destination(tmp_path, incarnation=23), second):
            sender.post(frame(1, A))
            assert isinstance(await reports.until_lost(), StaleIncarnation)
    assert not second.messages


async def test_a_receiver_that_stops_says_so(tmp_path: Path) -> None:
    reports, receiver = Reports(), Recorder()
    sender = GrpcEdgeSender(SOURCE, destination(tmp_path), Plaintext(), reports, SMALL)
    async with running(sender):
        async with hosted(destination(tmp_path), receiver):
            sender.post(frame(0, A))
            await receiver.count(1)
        assert isinstance(await reports.until_lost(), Draining)


async def test_a_restarted_sender_replaces_the_one_before_which_cannot_return(
    tmp_path: Path,
) -> None:
    receiver, old_reports = Recorder(), Reports()
    old_link = FaultyLink()
    there = destination(tmp_path)
    async with hosted(there, receiver):
        old = GrpcEdgeSender(SOURCE, there, Plaintext(), old_reports, SMALL, wrap=old_link.wrap)
        new = GrpcEdgeSender(replace(SOURCE, incarnation=12), there, Plaintext(), Reports(), SMALL)
        async with running(old):
            old.post(frame(0, A))
            await receiver.count(1)
            async with running(new):
                new.post(frame(0, B))
                await receiver.until(lambda: bool(receiver.lost))
                old.post(frame(1, A))
                assert isinstance(await old_reports.until_lost(), StaleIncarnation)
                new.post(frame(1, B))
                await receiver.until(lambda: receiver.chunks(B) == [0, 1])
    assert receiver.chunks(A) == [0]
    assert receiver.lost[0][0] == SOURCE


async def test_two_pods_of_a_group_are_heard_side_by_side(tmp_path: Path) -> None:
    receiver, there = Recorder(), destination(tmp_path)
    second = replace(SOURCE, address=f"unix:{tmp_path}/second.sock", incarnation=12)
    async with hosted(there, receiver):
        senders = [
            GrpcEdgeSender(each, there, Plaintext(), Reports(), SMALL) for each in (SOURCE, second)
        ]
        async with running(senders[0]), running(senders[1]):
            for step in range(2):
                for sender, key in zip(senders, (A, B), strict=True):
                    sender.post(frame(step, key))
                await receiver.count(2 * (step + 1))
            assert not receiver.lost
    assert receiver.chunks(A) == receiver.chunks(B) == [0, 1]


async def test_an_edge_may_be_dialled_again_after_it_was_lost(tmp_path: Path) -> None:
    receiver, there = Recorder(), destination(tmp_path)
    async with hosted(there, receiver):
        for number in range(2):
            sender = GrpcEdgeSender(SOURCE, there, Plaintext(), Reports(), SMALL)
            async with running(sender):
                sender.post(frame(number, A))
                await receiver.count(number + 1)
    assert receiver.chunks(A) == [0, 1]


@pytest.mark.parametrize("older", ["sender", "receiver"])
@remote_kinds
async def test_a_version_and_the_one_before_work_together(
    older: str, kind: str, tmp_path: Path
) -> None:
    previous = replace(SMALL, versions=Versions(WIRE_VERSION - 1, WIRE_VERSION - 2))
    current = replace(SMALL, shared_directory=tmp_path if kind == "shared" else None)
    ours, theirs = (previous, current) if older == "sender" else (current, previous)
    receiver, there = Recorder(), destination(tmp_path)
    async with hosted(there, receiver, theirs):
        sender = GrpcEdgeSender(SOURCE, there, Plaintext(), Reports(), ours)
        async with running(sender):
            for step in range(3):
                sender.post(frame(step, A, width=4096))
                await receiver.count(step + 1)
            await sender.drain()
    assert receiver.chunks(A) == [0, 1, 2]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(Versions(WIRE_VERSION - 2, WIRE_VERSION - 2), Versions(), id="old sender"),
        pytest.param(Versions(), Versions(WIRE_VERSION - 2, WIRE_VERSION - 2), id="old receiver"),
        pytest.param(Versions(WIRE_VERSION + 2, WIRE_VERSION + 1), Versions(), id="new sender"),
    ],
)
async def test_versions_further_apart_refuse_each_other(
    ours: Versions, theirs: Versions, tmp_path: Path
) -> None:
    reports, there = Reports(), destination(tmp_path)
    async with hosted(there, Recorder(), replace(SMALL, versions=theirs)):
        sender = GrpcEdgeSender(SOURCE, there, Plaintext(), reports, replace(SMALL, versions=ours))
        async with running(sender):
            sender.post(frame(0, A))
            error = await reports.until_lost()
    assert isinstance(error, VersionMismatch)
    assert "wire versions" in str(error)
