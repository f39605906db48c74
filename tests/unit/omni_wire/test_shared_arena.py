"""Memory shared by two processes: blocks are used, freed and joined; foreign files are not used."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_wire.errors import WireFormatError
from omni_wire.shared_arena import Block, SharedArena, SharedSegment
from tests.support.patience import PATIENT_SECONDS

SIZE = 64 * 1024


@pytest.fixture
def arena(tmp_path: Path) -> SharedArena:
    return SharedArena(tmp_path, SIZE)


def place(arena: SharedArena, content: bytes) -> Block:
    block = arena.place([memoryview(content)], len(content))
    assert block is not None
    return block


async def test_the_receiver_reads_what_was_placed(arena: SharedArena, tmp_path: Path) -> None:
    segment = SharedSegment(tmp_path, arena.offer, SIZE)
    arena.attach()
    block = place(arena, b"hello")
    arena.sent(7, block)
    view = segment.view(7, block.offset, 5)
    assert bytes(view) == b"hello"
    with pytest.raises(TypeError):
        view[0] = 0
    assert segment.in_use() == [7]


async def test_a_block_is_in_use_until_the_last_view_is_gone(
    arena: SharedArena, tmp_path: Path
) -> None:
    segment, freed = SharedSegment(tmp_path, arena.offer, SIZE), asyncio.Event()
    arena.attach()
    segment.watch(freed.set)
    block = place(arena, bytes(64))
    view = segment.view(1, block.offset, 64)
    array = np.frombuffer(view, np.int32)[4:]
    del view
    assert segment.take_freed() == []
    del array
    async with asyncio.timeout(PATIENT_SECONDS):
        await freed.wait()
    assert segment.take_freed() == [1]
    assert segment.in_use() == []


async def test_closing_the_arena_leaves_views_readable(arena: SharedArena, tmp_path: Path) -> None:
    segment = SharedSegment(tmp_path, arena.offer, SIZE)
    arena.attach()
    view = segment.view(1, place(arena, b"still here").offset, 10)
    arena.close()
    assert bytes(view) == b"still here"
    assert not os.listdir(tmp_path)


def test_nothing_is_placed_before_the_receiver_is_there(arena: SharedArena) -> None:
    assert arena.place([b"x"], 1) is None


@given(st.lists(st.tuples(st.integers(1, 20_000), st.booleans()), max_size=30))
def test_blocks_never_overlap_and_all_memory_comes_back(steps: list[tuple[int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        arena = SharedArena(Path(directory), SIZE)
        arena.attach()
        used: list[Block] = []
        for size, free in steps:
            if free and used:
                arena.free(used.pop(size % len(used)))
            elif (block := arena.place([bytes(size)], size)) is not None:
                used.append(block)
            borders = sorted((block.offset, block.offset + block.size) for block in used)
            assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(borders))
        for block in used:
            arena.free(block)
        assert place(arena, bytes(SIZE - 64)) == Block(64, SIZE - 64)
        arena.close()


def test_a_full_arena_says_so(arena: SharedArena) -> None:
    arena.attach()
    place(arena, bytes(SIZE // 2))
    assert arena.place([bytes(SIZE // 2)], SIZE // 2) is None


def test_what_the_receiver_does_not_use_is_free_after_a_break(arena: SharedArena) -> None:
    arena.attach()
    for sequence in (1, 2, 3):
        arena.sent(sequence, place(arena, bytes(16 * 1024)))
    assert arena.place([bytes(32 * 1024)], 32 * 1024) is None
    arena.keep_only(received=2, in_use=[1])
    arena.freed([1])
    place(arena, bytes(32 * 1024))


@pytest.mark.parametrize(
    "case", ["missing", "other name", "path", "other size", "other file", "link", "too large"]
)
async def test_a_file_that_was_not_offered_is_not_mapped(
    case: str, arena: SharedArena, tmp_path: Path
) -> None:
    offer = arena.offer
    file = tmp_path / offer.name
    match case:
        case "missing":
            file.unlink()
        case "other name":
            offer = replace(offer, name="passwords")
        case "path":
            offer = replace(offer, name="../" + offer.name)
        case "other size":
            offer = replace(offer, size=SIZE // 2)
        case "other file":
            offer = replace(offer, nonce=b"0" * 16)
        case "link":
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        case "too large":
            os.truncate(file, SIZE * 2)
            offer = replace(offer, size=SIZE * 2)
    with pytest.raises(OSError, match=r"omni-|passwords"):
        SharedSegment(tmp_path, offer, SIZE)


async def test_a_block_outside_the_file_is_refused(arena: SharedArena, tmp_path: Path) -> None:
    segment = SharedSegment(tmp_path, arena.offer, SIZE)
    for offset, length in ((SIZE, 1), (64, SIZE), (65, 1), (64, 0)):
        with pytest.raises(WireFormatError):
            segment.view(1, offset, length)
    assert segment.in_use() == []


def test_a_directory_without_room_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"omni-"):
        SharedArena(tmp_path / "missing", SIZE)
