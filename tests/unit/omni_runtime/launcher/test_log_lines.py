"""Output of a process becomes lines, whatever its pieces are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_runtime.launcher.log_lines import MAX_LINE_BYTES, LastLines, LineSplitter


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        pytest.param([b"one\ntw", b"o\n"], ["one", "two"], id="a line in two pieces"),
        pytest.param([b"one\n\n\ntwo\n"], ["one", "two"], id="blank lines are left out"),
        pytest.param([b"10%\r20%\r\ndone"], ["10%", "20%", "done"], id="a bar that redraws itself"),
        pytest.param([b"caf\xc3", b"\xa9\n"], ["café"], id="a character in two pieces"),
        pytest.param([b"\xff\n"], ["\ufffd"], id="no text at all"),
    ],
)
def test_pieces_become_lines(pieces: list[bytes], lines: list[str]) -> None:
    splitter = LineSplitter()
    found = [line for piece in pieces for line in splitter.feed(piece)]
    assert [*found, *splitter.close()] == lines


def test_a_line_that_never_ends_costs_no_memory() -> None:
    splitter = LineSplitter()
    lines = splitter.feed(b"x" * (3 * MAX_LINE_BYTES + 1))
    assert [len(line) for line in lines] == [MAX_LINE_BYTES] * 3
    assert splitter.close() == ["x"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=20))
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    whole, split = LineSplitter(), LineSplitter()
    at_once = [*whole.feed(b"".join(pieces)), *whole.close()]
    assert [*(line for piece in pieces for line in split.feed(piece)), *split.close()] == at_once


def test_only_the_last_lines_are_kept() -> None:
    kept = LastLines(2)
    for line in ("one", "two", "three"):
        kept.add(line)
    assert kept.lines == ("two", "three")
