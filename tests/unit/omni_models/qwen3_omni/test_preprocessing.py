"""Preprocessing gives what transformers' processor gives for the same conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omni_models.media.limits import FetchPolicy, MediaLimits
from omni_models.qwen3_omni.preprocessing.preparation import Preparation
from omni_models.qwen3_omni.preprocessing.stage import (
    PreprocessingSettings,
    build_preparation,
)
from omni_models.qwen3_omni.projection import audio_inputs, image_inputs, without_media
from omni_models.qwen3_omni.routing import route_preprocessing
from omni_models.qwen3_omni.warm_up import speech_requests
from omni_wire.errors import InvalidRequest, ServiceError
from omni_wire.messages import Payload, RequestView
from tests.support import media
from tests.support.oracle import Oracle
from tests.support.prompts import PROMPTS, VIDEO_PIXELS, Prompt
from tests.support.stage_events import payload

VIDEO_INPUTS: dict[str, Any] = {
    "video_min_pixels": VIDEO_PIXELS["shortest_edge"],
    "video_max_pixels": VIDEO_PIXELS["longest_edge"],
}


@pytest.fixture(scope="module")
def settings(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> PreprocessingSettings:
    folder = tmp_path_factory.mktemp("media")
    (folder / "picture.png").write_bytes(media.png(media.picture()))
    return PreprocessingSettings(
        str(checkpoint),
        tool_call_parser="qwen25",
        max_seq_len=2000,
        limits=MediaLimits(max_bytes=4 << 20, max_pixels=1 << 20, max_seconds=60, max_items=8),
        policy=FetchPolicy(folder=folder),
    )


@pytest.fixture(scope="module")
def prepare(settings: PreprocessingSettings) -> Preparation:
    return build_preparation(settings)


def request(
    messages: Any = None,
    params: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Payload:
    messages = messages or [{"role": "user", "content": "Hello"}]
    view = RequestView({"messages": messages, **inputs}, params or {}, metadata or {})
    return replace(payload(), request=view)


def of_prompt(prompt: Prompt) -> Payload:
    heard: dict[str, Any] = {"use_audio_in_video": True} if prompt.use_audio_in_video else {}
    return request(prompt.openai_messages(), **VIDEO_INPUTS, **heard)


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_are_those_of_transformers(prepare: Preparation, oracle: Oracle, name: str) -> None:
    expected, data = oracle.inputs(PROMPTS[name]), prepare(of_prompt(PROMPTS[name])).data
    assert isinstance(data, Mapping)
    prompt: Any = data["prompt"]
    assert prompt["input_ids"].tolist() == expected["input_ids"][0].tolist()
    parts: Any = data["media"]
    inputs: Any = data["encoder_inputs"]
    assert parts.get("audio_in_video", False) == PROMPTS[name].use_audio_in_video
    for kind, pixels in (("image", "pixel_values"), ("video", "pixel_values_videos")):
        if pixels not in expected:
            assert kind not in parts
            continue
        assert torch.equal(inputs["image_encoder"][pixels], expected[pixels])
        grids = expected[f"{kind}_grid_thw"].tolist()
        assert parts[kind]["grid_thw"].tolist() == grids
        assert inputs["image_encoder"][f"{kind}_grid_thw"].tolist() == grids
        assert len(set(parts[kind]["hashes"])) == len(grids)
    if "video_second_per_grid" in expected:
        seconds = parts["video"]["seconds_per_grid"].tolist()
        assert seconds == torch.as_tensor(expected["video_second_per_grid"]).tolist()
    if "input_features" in expected:
        mask = expected["feature_attention_mask"].bool()
        wanted = expected["input_features"].permute(0, 2, 1)[mask].T
        assert torch.equal(inputs["audio_encoder"]["input_features"], wanted)
        assert parts["audio"]["lengths"].tolist() == mask.sum(-1).tolist()


def data_of(prepared: Payload) -> Any:
    return prepared.data


def test_a_request_goes_on_without_its_media(prepare: Preparation) -> None:
    prepared = prepare(of_prompt(PROMPTS["image"]))
    assert prepared.request == RequestView({}, {}, {})


def test_each_stage_gets_what_it_reads(prepare: Preparation) -> None:
    prepared = prepare(of_prompt(PROMPTS["mixed"]))
    targets = ("image_encoder", "audio_encoder", "thinker", "talker_ar")
    assert route_preprocessing(prepared) == targets
    gathering: Any = without_media(prepared).data
    assert gathering["encoder_inputs"] == {stage: {"_active": True} for stage in targets[:2]}
    assert gathering["prompt"] is data_of(prepared)["prompt"]
    for project, stage in ((image_inputs, "image_encoder"), (audio_inputs, "audio_encoder")):
        assert list(data_of(project(prepared))["encoder_inputs"]) == [stage]


WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Tells it.",
    "parameters_json": '{"type": "object", "properties": {"b": {}, "a": {}}}',
}
TEXT = {"output_modalities": ["text"]}


def test_tools_and_calls_are_in_the_prompt_as_in_transformers(
    prepare: Preparation, oracle: Oracle
) -> None:
    call = {"name": "weather", "arguments": '{"a": 1}'}
    messages = [
        {"role": "user", "content": "How is it?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "It rains."},
    ]
    function = {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {"type": "object", "properties": {"b": {}, "a": {}}},
    }
    text = oracle.processor.apply_chat_template(
        messages,
        tools=[{"type": "function", "function": function}],
        add_generation_prompt=True,
        tokenize=False,
    )
    prompt = data_of(prepare(request(messages, {"tools": [WEATHER]}, TEXT)))["prompt"]
    assert prompt["input_ids"].tolist() == oracle.processor.tokenizer(text)["input_ids"]
    assert prompt["grammar"] is None
    forced = {"tools": [WEATHER], "tool_choice": "required"}
    grammar = data_of(prepare(request(messages, forced, TEXT)))["prompt"]["grammar"]
    assert (grammar["kind"], grammar["field"]) == ("structural_tag", "tools")


@pytest.mark.parametrize(
    ("params", "metadata", "field"),
    [
        ({"tools": [WEATHER]}, {}, "tools"),
        ({"tools": [WEATHER]}, {"output_modalities": ["text", "audio"]}, "tools"),
        ({"tools": [{**WEATHER, "description": "<|image_pad|>"}]}, TEXT, "tools"),
        ({"tools": [WEATHER], "tool_choice": "required", "ignore_eos": True}, TEXT, "ignore_eos"),
        ({"response_format": {"type": "json_object"}, "min_tokens": 2}, TEXT, "min_tokens"),
        ({"top_logprobs": 3}, TEXT, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, TEXT, "top_logprobs"),
        ({"logit_bias": {"x": 1.0}}, TEXT, "logit_bias"),
        ({"logit_bias": {"1": 101.0}}, TEXT, "logit_bias"),
    ],
)
def test_forms_that_cannot_be_had_are_refused_by_name(
    prepare: Preparation, params: dict[str, Any], metadata: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        prepare(request(None, params, metadata))
    assert refusal.value.details["field"] == field


def test_a_pipeline_without_a_format_of_calls_refuses_tools(
    settings: PreprocessingSettings,
) -> None:
    without = build_preparation(replace(settings, tool_call_parser=None))
    with pytest.raises(InvalidRequest, match="tool_call_parser"):
        without(request(None, {"tools": [WEATHER]}, TEXT))


def test_a_text_request_goes_to_no_encoder(prepare: Preparation) -> None:
    prepared = prepare(request(metadata={"output_modalities": ["text"]}))
    assert route_preprocessing(prepared) == ("thinker",)
    assert data_of(prepared)["media"] == {}


def test_warm_ups_cross_every_encoder_with_a_short_prompt(prepare: Preparation) -> None:
    routes = []
    for view in speech_requests().values():
        prepared = prepare(replace(payload(), request=view))
        assert len(data_of(prepared)["prompt"]["input_ids"]) < 64
        routes.append(route_preprocessing(prepared))
    every = ("image_encoder", "audio_encoder", "thinker", "talker_ar")
    assert routes == [("thinker",), every]
    assert data_of(prepared)["media"].keys() >= {"image", "video", "audio"}


def hashes(prepare: Preparation, *messages: Any, **inputs: Any) -> list[str]:
    parts: Any = prepare(request(list(messages), **inputs)).data
    return [digest for kind in parts["media"].values() for digest in kind["hashes"]]


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def image(content: bytes | str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": content}}


def sound(content: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": content, "format": "wav"}}


PNG = media.png(media.picture())
OTHER = media.png(media.picture(shift=9))


def test_equal_media_have_equal_hashes_and_others_do_not(prepare: Preparation) -> None:
    first, again, other = hashes(prepare, user(image(PNG), image(PNG), image(OTHER)))
    assert first == again != other
    assert hashes(prepare, user(image(media.data_url("image/png", PNG)))) == [first]


def test_a_short_sound_beside_a_longer_one_is_another_input(prepare: Preparation) -> None:
    short, long = sound(media.wav(media.sound(0.3))), sound(media.wav(media.sound(1.5)))
    (alone,) = hashes(prepare, user(short))
    assert alone not in hashes(prepare, user(short, long))
    assert hashes(prepare, user(short, long)) == hashes(prepare, user(short, long))


def test_video_sampling_is_part_of_the_hash(prepare: Preparation) -> None:
    clip = {"type": "video_url", "video_url": {"url": media.mkv(media.video(12), fps=4)}}
    dense = hashes(prepare, user(clip), **VIDEO_INPUTS, video_fps=4.0)
    sparse = hashes(prepare, user(clip), **VIDEO_INPUTS, video_fps=2.0)
    assert dense != sparse


def test_local_files_are_read_from_the_folder_alone(prepare: Preparation) -> None:
    (inside,) = hashes(prepare, user(image("picture.png")))
    assert inside == hashes(prepare, user(image(PNG)))[0]
    for path in ("../secret.png", "/etc/passwd", "file:///etc/passwd"):
        with pytest.raises(ServiceError) as refusal:
            prepare(request([user(image(path))]))
        assert refusal.value.reason == "MEDIA_REFUSED"
        assert refusal.value.details["field"] == "messages[0].content[0].image_url.url"


def test_media_beside_the_messages_lead_the_last_user_message(prepare: Preparation) -> None:
    beside = request(
        [{"role": "user", "content": "What?"}], images=[PNG], audios=[media.wav(media.sound())]
    )
    within = request(
        [user(image(PNG), sound(media.wav(media.sound())), {"type": "text", "text": "What?"})]
    )
    ids = [data_of(prepare(it))["prompt"]["input_ids"].tolist() for it in (beside, within)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"messages": "hello"}, "messages must be a list"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role: a role is one of"),
        ({"messages": [user({"type": "smell"})]}, "input_audio"),
        ({"messages": [user({"type": "image_url"})]}, "holds 'image_url'"),
        ({"messages": [user({"type": "text", "text": 5})]}, "messages[0].content[0].text"),
        ({"messages": [user({"type": "text", "text": "<|image_pad|>"})]}, "<|image_pad|>"),
        ({"images": [PNG] * 9}, "at most 8"),
        ({"temperature": 3}, "unknown inputs temperature"),
        ({"video_fps": 0}, "video_fps must be above 0"),
        ({"video_max_frames": "many"}, "video_max_frames"),
        ({"use_audio_in_video": "yes"}, "true or false"),
        ({"params": {"speaker": "Nobody"}}, "aiden, chelsie, ethan"),
        ({"params": {"temperature": -1}}, "temperature"),
        ({"params": {"talker_top_k": "x"}}, "talker_top_k"),
        ({"params": {"colour": "red"}}, "accepted are"),
        ({"params": {"audio_dtype": "mp3"}}, "float32, int16"),
        ({"params": {"initial_codec_chunk_frames": 0}}, "initial_codec_chunk_frames"),
        ({"params": {"max_tokens": 1990}}, "max_tokens asks for 1990 more"),
        ({"metadata": {"output_modalities": ["smell"]}}, "one or more of text, audio"),
        ({"metadata": {"output_modalities": []}}, "one or more of text, audio"),
        ({"messages": [{"role": "user", "content": "fox " * 5000}]}, "tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    prepare: Preparation, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        prepare(request(**changes))
    assert says in str(refusal.value)


def test_a_pipeline_that_only_writes_refuses_speech(settings: PreprocessingSettings) -> None:
    prepare = build_preparation(replace(settings, speech_enabled=False))
    prepare(request(metadata={"output_modalities": "text"}))
    with pytest.raises(InvalidRequest, match="one or more of text, got"):
        prepare(request(metadata={"output_modalities": ["text", "audio"]}))


def test_hostile_media_are_refused_by_type(prepare: Preparation) -> None:
    hundred_megapixels = media.png(np.zeros((10000, 10000, 3), np.uint8))
    wav = media.wav(media.sound())
    cases: list[tuple[dict[str, Any], str]] = [
        (image(b""), "INVALID_MEDIA"),
        (image(b"no picture"), "INVALID_MEDIA"),
        (image(PNG[: len(PNG) // 2]), "INVALID_MEDIA"),
        (image("data:image/png;base64,!!!!"), "INVALID_MEDIA"),
        (image("data:image/png;base64"), "INVALID_MEDIA"),
        (image(hundred_megapixels), "MEDIA_TOO_LARGE"),
        (image(b"x" * (5 << 20)), "MEDIA_TOO_LARGE"),
        (image("gopher://example.com/x"), "MEDIA_REFUSED"),
        (sound(wav[:44]), "INVALID_MEDIA"),
        (sound(media.wav(media.sound(61))), "MEDIA_TOO_LARGE"),
        ({"type": "video_url", "video_url": {"url": wav}}, "INVALID_MEDIA"),
        ({"type": "video_url", "video_url": {"url": media.mkv(media.video(1))}}, "INVALID_MEDIA"),
    ]
    for part, reason in cases:
        with pytest.raises(ServiceError) as refusal:
            prepare(request([user({"type": "text", "text": "see"}, part)]))
        assert refusal.value.reason == reason, str(refusal.value)
        assert refusal.value.details["field"].startswith("messages[0].content[1]")


def test_a_heard_video_needs_a_sound_track(prepare: Preparation) -> None:
    clip = {"type": "video_url", "video_url": {"url": media.mkv(media.video())}}
    with pytest.raises(ServiceError, match="no sound track"):
        prepare(request([user(clip)], use_audio_in_video=True, **VIDEO_INPUTS))


def test_a_silent_second_is_a_sound_like_any_other(prepare: Preparation) -> None:
    silence = media.wav(np.zeros(16000, np.float32))
    data: Any = prepare(request([user(sound(silence))])).data
    features = data["encoder_inputs"]["audio_encoder"]["input_features"]
    assert features.shape == (128, 100)
    assert torch.isfinite(features).all()
