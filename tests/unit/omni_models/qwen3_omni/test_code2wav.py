"""What the code2wav stage sends, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from omni_models.qwen3_omni.code2wav.stage import Code2WavSettings, build_code2wav
from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Chunks,
    NewRequest,
    Opened,
    RequestError,
    Result,
    StepOutput,
)
from omni_wire.identity import RequestKey
from omni_wire.messages import RequestView, Row, StepFrame, StreamDone
from tests.support.oracle import Oracle
from tests.support.schedulers import DrivenScheduler
from tests.support.stage_events import key, payload

GROUPS = 4
CODES = np.random.default_rng(3).integers(0, 64, (4, 60, GROUPS))


class Talker:
    """Sends frames of requests a, b, c, d to a stage driven by hand."""

    def __init__(self, stage: DrivenScheduler) -> None:
        self.stage = stage
        self.sent: dict[str, int] = {}

    def frames(self, **counts: int) -> Chunks:
        """Return a step with so many frames of each request, padded to the longest."""
        longest = max(counts.values())
        codes = np.zeros((len(counts), longest, GROUPS), np.int16)
        for row, (name, count) in enumerate(counts.items()):
            begin = self.sent.get(name, 0)
            codes[row, :count] = CODES["abcd".index(name), begin : begin + count]
            self.sent[name] = begin + count
        columns: dict[str, Any] = {
            "codes": codes,
            "frames": np.array(list(counts.values()), np.int32),
        }
        rows = tuple(Row(key(name), 0) for name in counts)
        return Chunks(
            "talker_ar", StepFrame("talker_ar", 0, rows, columns), tuple(range(len(rows)))
        )

    def end(self, name: str, reason: str = "stop") -> tuple[StreamDone, NewRequest]:
        data = {"frames": self.sent.get(name, 0), "finish_reason": reason}
        return StreamDone(key(name), "talker_ar", 0), NewRequest(payload(name, "talker_ar", data))


def made(oracle: Oracle, **changes: Any) -> Talker:
    settings = Code2WavSettings(str(oracle.checkpoint), dtype="float32")
    return Talker(DrivenScheduler(build_code2wav(replace(settings, **changes))))


@pytest.fixture
def talker(oracle: Oracle) -> Talker:
    return made(oracle)


def opened(name: str, params: Mapping[str, Any]) -> Opened:
    return Opened(key(name), RequestView({}, params))


def outputs(talker: Talker) -> list[StepOutput]:
    return talker.stage.outbox.of(StepOutput)


def samples(talker: Talker, name: str) -> list[int]:
    """Return the samples of each piece a request got."""
    return [o.columns["pcm"].shape[1] for o in outputs(talker) if key(name) in o.keys]


def sound(talker: Talker, name: str) -> np.ndarray[Any, Any]:
    pieces: list[np.ndarray[Any, Any]] = []
    for output in outputs(talker):
        if key(name) in output.keys:
            row, begin = output.keys.index(key(name)), sum(map(len, pieces))
            columns: Mapping[str, Any] = output.columns
            assert columns["offset"][row] == begin
            pieces.append(columns["pcm"][row])
    return np.concatenate(pieces)


def ended(talker: Talker) -> dict[RequestKey, Any]:
    return {result.key: result.data for result in talker.stage.outbox.of(Result)}


def windows(frames: Sequence[int]) -> list[int]:
    return [1920 * count - (555 if number == 0 else 0) for number, count in enumerate(frames)]


def test_windows_double_up_to_the_steady_size_and_the_rest_is_flushed(talker: Talker) -> None:
    talker.stage.put(talker.frames(a=33), *talker.end("a"))
    talker.stage.finish()
    assert samples(talker, "a") == windows([1, 2, 4, 8, 10, 8])
    assert ended(talker)[key("a")] == {
        "sample_rate": 24000,
        "samples": 1920 * 33 - 555,
        "frames": 33,
        "first_frames": 1,
        "finish_reason": "stop",
    }


def test_the_joined_sound_is_that_of_transformers(talker: Talker, oracle: Oracle) -> None:
    for step in range(20):
        talker.stage.put(talker.frames(a=1, **({"b": 2} if step > 4 else {})))
    talker.stage.put(*talker.end("a"), *talker.end("b", "length"))
    talker.stage.finish()
    for number, name in enumerate("ab"):
        codes = torch.from_numpy(CODES[number, : talker.sent[name]].T[None])
        with torch.no_grad():
            whole = oracle.model.code2wav(codes).reshape(-1).numpy()
        assert np.abs(sound(talker, name) - whole).max() <= 1e-5


def test_nothing_is_decoded_before_its_window_is_full(talker: Talker) -> None:
    talker.stage.put(talker.frames(a=2))
    assert samples(talker, "a") == windows([1])
    talker.stage.put(talker.frames(a=1))
    assert samples(talker, "a") == windows([1, 2])


def test_sound_does_not_wait_for_the_payload_once_the_talker_has_ended(talker: Talker) -> None:
    done, new = talker.end("a")
    talker.stage.put(talker.frames(a=2), done)
    talker.stage.finish()
    assert samples(talker, "a") == windows([1, 1])
    assert not ended(talker)
    talker.stage.put(new)
    assert ended(talker)[key("a")]["frames"] == 2


def test_no_frames_are_an_empty_sound(talker: Talker) -> None:
    talker.stage.put(*talker.end("a", "no_text"))
    assert not outputs(talker)
    assert ended(talker)[key("a")] == {
        "sample_rate": 24000,
        "samples": 0,
        "frames": 0,
        "first_frames": 0,
        "finish_reason": "no_text",
    }


def test_first_windows_overtake_later_ones(talker: Talker) -> None:
    talker.stage.put(talker.frames(a=1))
    talker.stage.put(talker.frames(a=14), talker.frames(b=1))
    talker.stage.finish()
    assert [o.keys for o in outputs(talker)][:2] == [(key("a"),), (key("b"),)]


def test_windows_of_equal_length_are_decoded_together_whatever_their_age(talker: Talker) -> None:
    talker.stage.put(talker.frames(a=25))
    talker.stage.finish()
    talker.stage.put(opened("b", {"initial_codec_chunk_frames": 10}), talker.frames(b=10))
    before = len(outputs(talker))
    talker.stage.put(talker.frames(a=10, b=10))
    assert [o.keys for o in outputs(talker)[before:]] == [(key("a"), key("b"))]


def test_a_request_chooses_its_first_window_up_to_the_steady_one(talker: Talker) -> None:
    talker.stage.put(opened("a", {"initial_codec_chunk_frames": 4}), talker.frames(a=24))
    talker.stage.put(opened("b", {"initial_codec_chunk_frames": 99}), talker.frames(b=20))
    talker.stage.finish()
    assert samples(talker, "a") == windows([4, 8, 10])
    assert samples(talker, "b") == windows([10, 10])


@pytest.mark.parametrize(("first", "ramp"), [(2, [2, 4, 6, 6]), (9, [6, 6, 6])])
def test_a_deployment_chooses_its_ramp_up_to_the_steady_window(
    oracle: Oracle, first: int, ramp: list[int]
) -> None:
    talker = made(oracle, initial_codec_chunk_frames=first, stream_chunk_size=6)
    talker.stage.put(talker.frames(a=18))
    talker.stage.finish()
    assert samples(talker, "a") == windows(ramp)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"initial_codec_chunk_frames": 0}, "initial_codec_chunk_frames"),
        ({"initial_codec_chunk_frames": "4"}, "initial_codec_chunk_frames"),
        ({"audio_dtype": "mp3"}, "audio_dtype"),
        ({"return_codes": 1}, "return_codes"),
    ],
)
def test_an_impossible_wish_fails_its_request_alone(
    talker: Talker, params: Mapping[str, Any], field: str
) -> None:
    talker.stage.put(opened("a", params), talker.frames(a=1, b=1))
    talker.stage.finish()
    (failed,) = talker.stage.outbox.of(RequestError)
    assert failed.key == key("a")
    assert field in str(failed.error)
    assert samples(talker, "b") == windows([1])


def test_int16_is_the_rounded_sound(talker: Talker) -> None:
    step = talker.frames(a=1, b=1)
    codes: Any = step.frame.columns["codes"]
    codes[1] = codes[0]
    talker.stage.put(opened("a", {"audio_dtype": "int16"}), step)
    rounded, exact = sound(talker, "a"), sound(talker, "b")
    assert rounded.dtype == np.int16
    assert np.abs(rounded - exact * 32767).max() <= 0.5


def test_codes_come_back_where_they_are_wanted(talker: Talker) -> None:
    talker.stage.put(opened("a", {"return_codes": True}), talker.frames(a=9, b=3))
    talker.stage.put(*talker.end("a"), *talker.end("b"), opened("c", {"return_codes": True}))
    talker.stage.put(*talker.end("c"))
    talker.stage.finish()
    assert np.array_equal(ended(talker)[key("a")]["codes"], CODES[0, :9].T)
    assert ended(talker)[key("c")]["codes"].size == 0
    assert "codes" not in ended(talker)[key("b")]


def test_more_streams_than_slots_wait_for_one(oracle: Oracle) -> None:
    talker = made(oracle, codec_state_slots=2)
    talker.stage.put(talker.frames(a=1, b=1, c=1))
    talker.stage.finish()
    assert [o.keys for o in outputs(talker)] == [(key("a"), key("b"))]
    talker.stage.put(AbortRequest(key("a"), "the client left"))
    talker.stage.finish()
    assert talker.stage.outbox.of(Aborted) == [Aborted(key("a"))]
    assert outputs(talker)[-1].keys == (key("c"),)


def test_a_code_outside_the_codebook_fails_its_request_alone(talker: Talker) -> None:
    step = talker.frames(a=1, b=1)
    codes: Any = step.frame.columns["codes"]
    codes[0, 0, 0] = 64
    talker.stage.put(step)
    talker.stage.finish()
    assert [failed.key for failed in talker.stage.outbox.of(RequestError)] == [key("a")]
    assert samples(talker, "b") == windows([1])
