"""Routing of Qwen3-Omni: as the cases say, and without any request that could hang."""

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_config.schema import PipelineConfig, StageConfig
from omni_models.qwen3_omni import routing
from omni_models.qwen3_omni.topology import (
    Qwen3OmniPipelineConfig,
    Qwen3OmniSpeechColocatedPipelineConfig,
    Qwen3OmniSpeechPipelineConfig,
)

CASES = Path(__file__).parents[2] / "cases"
DEVIATIONS = json.loads((CASES / "deviations/models.json").read_text())


@dataclass(frozen=True)
class FakeRequest:
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class FakePayload:
    request: FakeRequest | None = field(default_factory=FakeRequest)
    data: object = field(default_factory=dict)


def routing_cases() -> list[Any]:
    cases = json.loads((CASES / "config/routing.json").read_text())["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.mark.parametrize("case", routing_cases())
def test_decisions_match_the_cases(case: dict[str, Any]) -> None:
    expected = case["expected"] | DEVIATIONS.get(case["id"], {}).get("expected", {})
    encoder_inputs = case["input"].get("encoder_inputs") or {}
    speech = routing.should_generate_audio_output(case["input"]["output_modalities"])
    decided: dict[str, object] = {
        "speech": speech,
        "preprocessing_next": routing.preprocessing_next(encoder_inputs, speech),
        "preprocessing_next_text_variant": routing.preprocessing_next_text(encoder_inputs),
        "encoder_next": routing.readers(speech),
        "thinker_next": Qwen3OmniSpeechPipelineConfig(model_path="m").by_name["thinker"].next,
        "thinker_stream_done": routing.stream_done_targets(speech),
        "terminals": routing.terminals(speech),
        "wait_sources_from_preprocessing": routing.wait_sources("preprocessing", encoder_inputs),
        "wait_sources_from_audio_encoder": routing.wait_sources("audio_encoder", encoder_inputs),
    }
    assert decided == {key: _names(value) for key, value in expected.items()}


def _names(value: object) -> object:
    """A lone name in the cases is a list of one here."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("modalities", "speech"),
    [
        (None, True),
        ("audio", True),
        ("Audio", True),
        ("text", False),
        ([], False),
        (["text"], False),
        (["text", "AUDIO"], True),
        ("audiobook", False),
    ],
)
def test_speech_is_wanted_unless_modalities_leave_it_out(
    modalities: str | list[str] | None, speech: bool
) -> None:
    assert routing.should_generate_audio_output(modalities) is speech
    request = FakeRequest({} if modalities is None else {"output_modalities": modalities})
    assert ("code2wav" in routing.expected_terminals(request)) is speech


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        pytest.param(FakePayload(request=None), "without its request", id="request dropped"),
        pytest.param(
            FakePayload(FakeRequest({"output_modalities": [1]})),
            r"a name or a list of names, got \[1\]",
            id="number among modalities",
        ),
        pytest.param(
            FakePayload(FakeRequest({"output_modalities": 7})),
            "a name or a list of names, got 7",
            id="modalities are a number",
        ),
        pytest.param(
            FakePayload(data={"encoder_inputs": {"image_encoder": 3}}),
            "must map each stage to its inputs",
            id="inputs are a number",
        ),
    ],
)
def test_what_cannot_be_routed_is_refused_by_name(payload: FakePayload, problem: str) -> None:
    with pytest.raises(routing.UnroutableRequest, match=problem):
        routing.route_preprocessing(payload)


# What any of the encoders may find in a payload, markers included.
inputs_of_an_encoder = st.none() | st.dictionaries(
    st.sampled_from(
        ["pixel_values", "pixel_values_videos", "input_features", "_skip", "_active", "other"]
    ),
    st.sampled_from([None, True, False, [1]]),
)
encoder_inputs_of_a_request = st.dictionaries(
    st.sampled_from(["image_encoder", "audio_encoder", "unknown"]), inputs_of_an_encoder
)
modalities_of_a_request = (
    st.none()
    | st.sampled_from(["text", "audio", "AUDIO", ""])
    | st.lists(st.sampled_from(["text", "audio", "Audio", "video"]))
)
variants = st.sampled_from(
    [
        Qwen3OmniPipelineConfig,
        Qwen3OmniSpeechPipelineConfig,
        Qwen3OmniSpeechColocatedPipelineConfig,
    ]
)


@given(variants, modalities_of_a_request, encoder_inputs_of_a_request)
def test_no_request_can_hang(
    variant: type[PipelineConfig],
    modalities: object,
    encoder_inputs: Mapping[str, Mapping[str, object] | None],
) -> None:
    config = variant(model_path="m")
    request = FakeRequest({} if modalities is None else {"output_modalities": modalities})
    journey = Journey(config, FakePayload(request, {"encoder_inputs": encoder_inputs}))
    journey.run()
    expected = (
        hook(config.terminal_stages_fn)(request) if config.terminal_stages_fn else config.terminals
    )
    assert expected
    assert set(expected) <= set(config.terminals)
    assert set(expected) <= journey.ran
    assert not journey.waiting, "a stage got a payload and waits for one that never comes"
    assert set(config.terminals) & journey.ran == set(expected), "work that nobody awaits"


@dataclass
class Journey:
    """One request going through the static graph and the hooks of a pipeline."""

    config: PipelineConfig
    payload: FakePayload
    ran: set[str] = field(default_factory=set)
    received: dict[str, set[str]] = field(default_factory=dict)

    @property
    def waiting(self) -> set[str]:
        return set(self.received) - self.ran

    def run(self) -> None:
        self.ran.add(self.config.entry)
        ready = [self.config.by_name[self.config.entry]]
        while ready:
            stage = ready.pop()
            told = _chosen(stage.stream_done_to_fn, stage.stream_to, self.payload)
            assert set(told) <= set(stage.stream_to)
            for target in _chosen(stage.route_fn, stage.next, self.payload):
                assert target in stage.next
                ready += self._deliver(stage.name, self.config.by_name[target])

    def _deliver(self, source: str, target: StageConfig) -> list[StageConfig]:
        received = self.received.setdefault(target.name, set())
        received.add(source)
        if target.wait_for and received != self._awaited(target, received):
            return []
        assert target.name not in self.ran, f"{target.name} runs twice"
        self.ran.add(target.name)
        return [target]

    def _awaited(self, target: StageConfig, received: set[str]) -> set[str] | None:
        assert target.wait_for_fn is not None
        answers = [hook(target.wait_for_fn)(None, source, self.payload) for source in received]
        known = {tuple(answer) for answer in answers if answer is not None}
        assert len(known) <= 1
        for answer in known:
            assert set(answer) <= set(target.wait_for)
            assert received <= set(answer), "a payload came from a stage nobody waits for"
            return set(answer)
        return None


def _chosen(path: str | None, static: tuple[str, ...], payload: FakePayload) -> tuple[str, ...]:
    chosen: tuple[str, ...] = hook(path)(payload) if path else static
    assert len(set(chosen)) == len(chosen)
    return chosen


@given(variants, modalities_of_a_request, encoder_inputs_of_a_request)
def test_whoever_streams_ends_the_stream_exactly_where_the_reader_runs(
    variant: type[PipelineConfig],
    modalities: object,
    encoder_inputs: Mapping[str, Mapping[str, object] | None],
) -> None:
    config = variant(model_path="m")
    request = FakeRequest({} if modalities is None else {"output_modalities": modalities})
    payload = FakePayload(request, {"encoder_inputs": encoder_inputs})
    journey = Journey(config, payload)
    journey.run()
    for stage in config.stages:
        if stage.name in journey.ran:
            told = _chosen(stage.stream_done_to_fn, stage.stream_to, payload)
            assert set(told) == set(stage.stream_to) & journey.ran


def hook(path: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
