"""What a request sets for single stages reaches them under the names they read."""

from __future__ import annotations

from typing import Any

import pytest

from omni_gateway.chat.request import ChatRequest
from omni_gateway.http_api.chat_request import ChatCompletionRequest
from omni_models.catalog import registry
from omni_models.qwen3_omni.topology import Qwen3OmniSpeechPipelineConfig
from omni_wire.errors import InvalidRequest

DECLARED = Qwen3OmniSpeechPipelineConfig.stage_parameters


def settled(**settings: Any) -> ChatRequest:
    request = ChatRequest({}, {"temperature": 0.5, "seed": 1}, stage_settings=settings)
    return request.settled(DECLARED)


def test_settings_of_a_stage_win_over_those_of_all() -> None:
    request = settled(
        stage_sampling={"thinker": {"temperature": 0.1}, "talker_ar": {"temperature": 0.9}},
        stage_params={"talker_ar": {"speaker": "ethan"}},
    )
    assert request.params == {
        "temperature": 0.1,
        "talker_temperature": 0.9,
        "speaker": "ethan",
        "seed": 1,
    }
    assert not request.stage_settings


@pytest.mark.parametrize(
    ("settings", "field", "known"),
    [
        ({"stage_sampling": {"talker": {}}}, "stage_sampling.talker", "talker_ar"),
        (
            {"stage_sampling": {"talker_ar": {"min_p": 0.1}}},
            "stage_sampling.talker_ar.min_p",
            "repetition_penalty",
        ),
        (
            {"stage_params": {"thinker": {"speaker": "ethan"}}},
            "stage_params.thinker.speaker",
            "max_tokens",
        ),
    ],
)
def test_what_no_stage_reads_is_refused_by_name(settings: Any, field: str, known: str) -> None:
    with pytest.raises(InvalidRequest, match=known) as refused:
        settled(**settings)
    assert refused.value.details["field"] == field


def test_http_requests_carry_settings_of_stages() -> None:
    asked = ChatCompletionRequest.model_validate(
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stage_sampling": {"talker_ar": {"top_k": 5}},
            "stage_params": {"code2wav": {"audio_dtype": "int16"}},
        }
    )
    assert asked.chat_request().settled(DECLARED).params == {
        "talker_top_k": 5,
        "audio_dtype": "int16",
    }


@pytest.mark.parametrize("name", registry().names)
def test_pipelines_declare_settings_for_stages_that_they_have(name: str) -> None:
    config = registry().by_name(name)(model_path="m")
    assert set(config.stage_parameters) <= set(config.by_name)
