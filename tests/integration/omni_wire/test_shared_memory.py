"""Shared memory on real edges: used where it can be, given back, and not missed elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from omni_wire.credentials import Plaintext
from omni_wire.envelope import scan
from omni_wire.grpc_edge import GrpcEdgeSender
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import Payload
from omni_wire.streams import ByteStream
from omni_wire.trees import to_numpy
from tests.support.edges import SMALL, SOURCE, Recorder, Reports, hosted, running

ITEMS = 12_000
SIZES = replace(SMALL, shared_bytes=256 * 1024)


def files_in(directory: Path) -> list[Path]:
    """Segments that still have a name."""
    return list(directory.glob("omni-*"))


class Counting:
    """A stream that counts the payload bytes inside its envelopes."""

    def __init__(self, stream: ByteStream, inline: list[int]) -> None:
        self._stream = stream
        self._inline = inline

    async def read(self) -> bytes | None:
        return await self._stream.read()

    async def write(self, data: bytes) -> None:
        self._inline.append(len(scan(data, 1 << 22)[1]))
        await self._stream.write(data)


class Pair:
    """A sender and a receiver that may or may not see the same directory."""

    def __init__(self, directory: Path, ours: Path | None, theirs: Path | None) -> None:
        self.receiver = Recorder()
        self.inline: list[int] = []
        self.there = Endpoint("talker", f"unix:{directory}/talker.sock", 22)
        self.theirs = replace(SIZES, shared_directory=theirs)
        self.sender = GrpcEdgeSender(
            SOURCE,
            self.there,
            Plaintext(),
            Reports(),
            replace(SIZES, shared_directory=ours),
            wrap=lambda stream: Counting(stream, self.inline),
        )

    async def send(self, number: int) -> None:
        data = {"x": np.full(ITEMS, number, np.float32)}
        self.sender.post(Payload(RequestKey("g", str(number)), "thinker", data))
        await self.receiver.count(number + 1)
        message = self.receiver.messages[number]
        assert isinstance(message, Payload)
        np.testing.assert_equal(to_numpy(message.data), data)


async def test_payloads_stay_out_of_the_stream_and_blocks_come_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path, tmp_path, tmp_path)
    async with hosted(pair.there, pair.receiver, pair.theirs), running(pair.sender):
        # The first goes before the receiver has answered; four fit at a time.
        for number in range(30):
            await pair.send(number)
            pair.receiver.messages[number] = Payload(RequestKey("g", "x"), "", None)
            await pair.sender.drain()
        assert sum(map(bool, pair.inline)) <= 3
        assert not files_in(tmp_path)


async def test_a_full_segment_sends_inline(tmp_path: Path) -> None:
    pair = Pair(tmp_path, tmp_path, tmp_path)
    async with hosted(pair.there, pair.receiver, pair.theirs), running(pair.sender):
        for number in range(12):
            await pair.send(number)
        # The receiver still holds every message.
        assert sum(map(bool, pair.inline)) >= 12 - 5


@pytest.mark.parametrize("case", ["receiver does not share", "other directory", "no directory"])
async def test_without_common_memory_payloads_go_inline(case: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    ours, theirs = {
        "receiver does not share": (tmp_path, None),
        "other directory": (tmp_path, other),
        "no directory": (tmp_path / "missing", tmp_path),
    }[case]
    pair = Pair(tmp_path, ours, theirs)
    async with hosted(pair.there, pair.receiver, pair.theirs), running(pair.sender):
        for number in range(4):
            await pair.send(number)
        assert sum(pair.inline) >= 4 * ITEMS * 4
    assert not files_in(tmp_path)


async def test_an_edge_leaves_no_file_behind(tmp_path: Path) -> None:
    pair = Pair(tmp_path, tmp_path, tmp_path)
    async with running(pair.sender):
        await asyncio.sleep(0)
    assert not files_in(tmp_path)
