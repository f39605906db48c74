"""Answers are taken apart into text and calls, however they are cut into pieces."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sglang")

from sglang.srt.entrypoints.openai.protocol import Tool as Declared
from sglang.srt.function_call.function_call_parser import FunctionCallParser

from omni_models.structured.tool_calls import CallDelta, ToolCallReader, ToolParsers
from omni_models.structured.wishes import Tool

TOOLS = [Tool("weather"), Tool("time")]
ARGUMENTS: dict[str, dict[str, object]] = {
    "weather": {"city": "Kraków", "days": [1, 23]},
    "time": {},
}


def spelled(name: str) -> str:
    call = json.dumps({"name": name, "arguments": ARGUMENTS[name]}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


WEATHER, TIME = spelled("weather"), spelled("time")


@pytest.fixture(scope="module")
def parsers() -> ToolParsers:
    found = ToolParsers("qwen25")
    while not found.ready():
        pass
    return found


def read(reader: ToolCallReader, pieces: list[str]) -> tuple[str, list[tuple[str, object]]]:
    """Return the text, and the names of the calls with their arguments."""
    text, deltas = "", list[CallDelta]()
    for shown, more in [*map(reader.add, pieces), reader.end()]:
        text += shown
        deltas += more
    calls: list[tuple[str, object]] = []
    for index, group in itertools.groupby(deltas, key=lambda delta: delta.index):
        parts = list(group)
        assert index == len(calls)
        assert parts[0].id
        assert not any(part.id or part.name for part in parts[1:])
        joined = "".join(part.arguments for part in parts)
        calls.append((parts[0].name, json.loads(joined)))
    return text, calls


ANSWERS: dict[str, tuple[str, list[str]]] = {
    "Nothing to call. 1 < 2, 3 <": ("Nothing to call. 1 < 2, 3 <", []),
    f"Let me see.\n{WEATHER}": ("Let me see.\n", ["weather"]),
    f"{WEATHER}\n{TIME}": ("", ["weather", "time"]),
    f"{TIME}\n{WEATHER}\n{TIME}": ("", ["time", "weather", "time"]),
}


@given(
    answer=st.sampled_from(list(ANSWERS)),
    cuts=st.sets(st.integers(1, 200)),
)
@settings(max_examples=60, deadline=None)
def test_however_an_answer_is_cut_the_same_calls_are_found(
    parsers: ToolParsers, answer: str, cuts: set[int]
) -> None:
    borders = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    pieces = [answer[a:b] for a, b in itertools.pairwise(borders)]
    text, names = ANSWERS[answer]
    found = read(parsers.reader(TOOLS), pieces)
    assert found == (text, [(name, ARGUMENTS[name]) for name in names])


def test_letter_by_letter_arguments_come_as_they_grow(parsers: ToolParsers) -> None:
    reader = parsers.reader(TOOLS)
    deltas = [delta for letter in WEATHER for delta in reader.add(letter)[1]]
    assert [delta.name for delta in deltas if delta.name] == ["weather"]
    assert len(deltas) > 5


def test_a_call_that_is_cut_off_keeps_what_had_come(parsers: ToolParsers) -> None:
    reader = parsers.reader(TOOLS)
    cut = WEATHER[: WEATHER.index("days")]
    deltas = [delta for letter in cut for delta in reader.add(letter)[1]]
    assert reader.end() == ("", [])
    assert reader.called
    assert '{"city": "Krak'.startswith("".join(delta.arguments for delta in deltas)[:10])


def test_the_parser_is_sglang_s(parsers: ToolParsers) -> None:
    answer = f"Let me see.\n{WEATHER}"
    declared = [Declared.model_validate(tool.templated()) for tool in TOOLS]
    whole = FunctionCallParser(declared, "qwen25")
    _, calls = whole.parse_non_stream(answer)
    _, found = read(parsers.reader(TOOLS), [answer])
    assert [(call.name, json.loads(call.parameters)) for call in calls] == found
