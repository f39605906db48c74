"""Text grows exactly as the tokenizer would decode it, and stops where it was asked to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from omni_models.qwen3_omni.decode.stage import build_decode
from omni_models.qwen3_omni.decode.text import GrowingText, StopStrings
from omni_models.qwen3_omni.decode.vocabulary import UnreadableTokenizer, Vocabulary
from omni_models.qwen3_omni.token_logprobs import logprob_columns
from omni_runtime.scheduler import Chunks, NewRequest, Opened, Result, StepOutput
from omni_runtime.sglang_bridge.sampling import TokenLogprob
from omni_wire.messages import RequestView, Row, StepFrame, StreamDone, Tree
from tests.support.schedulers import DrivenScheduler
from tests.support.stage_events import key, payload


@pytest.fixture(scope="module")
def vocabulary(checkpoint: Path) -> Vocabulary:
    return Vocabulary.read(checkpoint)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Any:
    return AutoTokenizer.from_pretrained(checkpoint)


@given(ids=st.lists(st.integers(0, 1087), max_size=40), cuts=st.sets(st.integers(0, 40)))
@settings(max_examples=200, deadline=None)
def test_pieces_join_to_what_the_tokenizer_decodes(
    vocabulary: Vocabulary, tokenizer: Any, ids: list[int], cuts: set[int]
) -> None:
    growing = GrowingText(vocabulary)
    borders = [0, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    pieces = [growing.add(ids[a:b]) for a, b in itertools.pairwise(borders)]
    joined = "".join(pieces) + growing.end()
    assert joined == tokenizer.decode(ids, skip_special_tokens=True) == growing.text


def test_a_character_comes_whole_or_not_yet(vocabulary: Vocabulary, tokenizer: Any) -> None:
    ids = tokenizer.encode("ß😀")
    assert len(ids) == 6
    growing = GrowingText(vocabulary)
    assert [growing.add([token]) for token in ids] == ["", "ß", "", "", "", "😀"]


def test_the_tokenizer_saved_by_transformers_reads_the_same(
    vocabulary: Vocabulary, tokenizer: Any, tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path)
    assert not (tmp_path / "vocab.json").exists()
    assert Vocabulary.read(tmp_path) == vocabulary


def test_a_folder_without_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTokenizer, match=str(tmp_path)):
        Vocabulary.read(tmp_path)


@given(
    text=st.text("abc", max_size=30),
    strings=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    cuts=st.sets(st.integers(0, 30)),
)
@settings(max_examples=300, deadline=None)
def test_text_ends_before_the_first_stop_string_however_it_is_cut(
    text: str, strings: list[str], cuts: set[int]
) -> None:
    stop = StopStrings(strings)
    borders = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    shown = "".join(stop.feed(text[a:b]) for a, b in itertools.pairwise(borders))
    shown += stop.flush()
    hits = [(text.find(s) + len(s), text.find(s), s) for s in strings if s in text]
    _, begin, found = min(hits, default=(0, len(text), None))
    assert (shown, stop.found) == (text[:begin], found)


class Thinker:
    """Sends tokens to a stage driven by hand."""

    def __init__(self, checkpoint: Path, tokenizer: Any) -> None:
        self.stage = DrivenScheduler(build_decode(str(checkpoint), "qwen25"))
        self.vocabulary = Vocabulary.read(checkpoint)
        self.tokenizer = tokenizer
        self.sent: dict[str, list[int]] = {}

    def step(self, more: Mapping[str, Any] | None = None, **tokens: int) -> Chunks:
        for name, token in tokens.items():
            self.sent.setdefault(name, []).append(token)
        rows = tuple(Row(key(name), 0) for name in tokens)
        columns = {"token_id": np.array(list(tokens.values())), **(more or {})}
        return Chunks("thinker", StepFrame("thinker", 0, rows, columns), tuple(range(len(rows))))

    def say(self, name: str, text: str) -> None:
        for token in self.tokenizer.encode(text):
            self.stage.put(self.step(**{name: token}))

    def end(self, name: str, **data: Any) -> None:
        whole = {
            "token_ids": np.array(self.sent.get(name, []), np.int64),
            "finish_reason": "stop",
            "stop_token_id": 1026,
            "stop_string": None,
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 0},
            **data,
        }
        done = StreamDone(key(name), "thinker", 0)
        self.stage.put(done, NewRequest(payload(name, "thinker", whole)))

    def go_on_until_ended(self, name: str) -> None:
        """Parsers of calls are imported aside, and the answer waits for them."""
        while key(name) not in [result.key for result in self.stage.outbox.of(Result)]:
            self.stage.scheduler.inbox.wait(1.0)
            self.stage.put()

    def shown(self, name: str) -> str:
        text = b""
        for output in self.stage.outbox.of(StepOutput):
            assert output.modality == "text"
            if key(name) in output.keys:
                row = output.keys.index(key(name))
                columns: Mapping[str, Any] = output.columns
                text += columns["text"][row, : columns["bytes"][row]].tobytes()
        return text.decode()

    def told(self, what: str) -> dict[str, list[Any]]:
        """Return what frames of a single answer say beside its text, by name."""
        found: dict[str, list[Any]] = {}
        for output in self.stage.outbox.of(StepOutput):
            meta: Any = output.meta
            if meta is not None:
                found.setdefault(output.keys[0].request_id, []).extend(meta[what])
        return found

    def result(self, name: str) -> Any:
        results = {result.key: result.data for result in self.stage.outbox.of(Result)}
        return results[key(name)]


@pytest.fixture
def thinker(checkpoint: Path, tokenizer: Any) -> Thinker:
    return Thinker(checkpoint, tokenizer)


def test_deltas_join_to_the_text_of_the_result(thinker: Thinker) -> None:
    thinker.say("a", "The quick brown ß😀 fox")
    thinker.end("a")
    assert thinker.shown("a") == thinker.result("a")["text"] == "The quick brown ß😀 fox"
    assert thinker.result("a") == {
        "text": "The quick brown ß😀 fox",
        "token_ids": thinker.sent["a"],
        "finish_reason": "stop",
        "stop_reason": 1026,
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 0},
    }


def test_answers_of_a_step_share_a_frame(thinker: Thinker, tokenizer: Any) -> None:
    fox, dog = tokenizer.encode(" fox")[0], tokenizer.encode("dog")[0]
    thinker.stage.put(thinker.step(a=fox, b=dog))
    (output,) = thinker.stage.outbox.of(StepOutput)
    assert output.keys == (key("a"), key("b"))
    assert (thinker.shown("a"), thinker.shown("b")) == tuple(map(tokenizer.decode, (fox, dog)))


def test_nothing_after_a_stop_string_is_shown(thinker: Thinker) -> None:
    thinker.stage.put(Opened(key("a"), RequestView({}, {"stop": ["brown f", "lazy"]})))
    thinker.say("a", "The quick brown fox jumps over")
    thinker.end("a", stop_token_id=None, stop_string="brown f")
    assert thinker.shown("a") == thinker.result("a")["text"] == "The quick "
    assert thinker.result("a")["finish_reason"] == "stop"
    assert thinker.result("a")["stop_reason"] == "brown f"


def test_the_beginning_of_a_stop_string_is_shown_once_it_ends_otherwise(thinker: Thinker) -> None:
    thinker.stage.put(Opened(key("a"), RequestView({}, {"stop": ["quick dog"]})))
    thinker.say("a", "The quick")
    assert thinker.shown("a") == "The "
    thinker.end("a", finish_reason="length", stop_token_id=None)
    assert thinker.shown("a") == "The quick"
    assert thinker.result("a")["finish_reason"] == "length"


def test_an_answer_without_tokens_is_empty(thinker: Thinker) -> None:
    thinker.end("a")
    assert thinker.result("a")["text"] == ""


def test_answers_that_want_logprobs_get_them_spelled_out_and_others_share_a_frame(
    thinker: Thinker,
) -> None:
    told = TokenLogprob(-0.5, ((41, -0.5), (40, -1.5)))
    columns = logprob_columns([[told], [], [TokenLogprob(-2.0)]])
    thinker.stage.put(thinker.step(columns, a=41, b=42, c=43))
    plain, *others = thinker.stage.outbox.of(StepOutput)
    assert (plain.keys, plain.meta) == ((key("b"),), None)
    pieces = thinker.vocabulary.pieces
    assert [len(output.keys) for output in others] == [1, 1]
    top = [
        {"token_id": token, "bytes": pieces[token], "logprob": pytest.approx(value)}
        for token, value in told.top
    ]
    assert thinker.told("logprobs") == {
        "a": [{**top[0], "top": top}],
        "c": [{"token_id": 43, "bytes": pieces[43], "logprob": -2.0, "top": []}],
    }


CALL = '<tool_call>\n{"name":"weather", "arguments":{"city": "Kraków"}}\n</tool_call>'
TOOLS = {"tools": [{"name": "weather"}, {"name": "time"}]}


def test_calls_leave_the_text_and_end_the_answer(thinker: Thinker) -> None:
    thinker.stage.put(Opened(key("a"), RequestView({}, TOOLS)))
    thinker.say("a", f"Let me see. {CALL}\n{CALL}")
    thinker.end("a")
    thinker.go_on_until_ended("a")
    result = thinker.result("a")
    assert (result["text"], result["finish_reason"]) == ("Let me see. ", "tool_calls")
    assert thinker.shown("a") == result["text"]
    deltas = thinker.told("tool_calls")
    calls = [[delta for delta in deltas["a"] if delta["index"] == index] for index in (0, 1)]
    for pieces in calls:
        assert pieces[0]["name"] == "weather"
        arguments = "".join(piece["arguments"] for piece in pieces)
        assert json.loads(arguments) == {"city": "Kraków"}
    assert calls[0][0]["id"] != calls[1][0]["id"]


def test_without_tools_nothing_is_taken_for_a_call(thinker: Thinker) -> None:
    asked: dict[str, dict[str, Tree]] = {"a": {}, "b": {**TOOLS, "tool_choice": "none"}}
    for name, params in asked.items():
        thinker.stage.put(Opened(key(name), RequestView({}, params)))
        thinker.say(name, CALL)
        thinker.end(name)
        assert thinker.result(name)["text"] == CALL
        assert thinker.result(name)["finish_reason"] == "stop"
