"""Payloads as preprocessing and the encoders would make them, computed by transformers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, RequestView
from tests.support.oracle import Oracle
from tests.support.prompts import Prompt

_KINDS = {"image": "pixel_values", "video": "pixel_values_videos"}


def key_of(name: str) -> RequestKey:
    """Return the key of a test's request."""
    return RequestKey("0" * 12, name)


def merged_payload(
    oracle: Oracle,
    prompt: Prompt,
    name: str,
    params: Mapping[str, Any] | None = None,
    modalities: list[str] | None = None,
) -> Payload:
    """Return what the thinker's fan-in makes of a prompt; the talker reads the same tree."""
    inputs = oracle.inputs(prompt)
    data = {
        "prompt": {"input_ids": inputs["input_ids"][0].numpy()},
        "media": _media(inputs, prompt),
        "embeddings": _embeddings(oracle.model.thinker, inputs),
    }
    metadata = {} if modalities is None else {"output_modalities": modalities}
    view = RequestView(inputs={}, params=dict(params or {}), metadata=metadata)
    return Payload(key_of(name), "preprocessing", data, view, bindings={})


def _media(inputs: Any, prompt: Prompt) -> dict[str, Any]:
    media: dict[str, Any] = {}
    for kind, grid in (("image", "image_grid_thw"), ("video", "video_grid_thw")):
        if grid in inputs:
            pixels = prompt.images if kind == "image" else prompt.videos
            media[kind] = {
                "grid_thw": inputs[grid].numpy(),
                "hashes": [_digest(item) for item in pixels],
            }
    if "video" in media:
        media["video"]["seconds_per_grid"] = np.asarray(inputs["video_second_per_grid"])
    if "feature_attention_mask" in inputs:
        media["audio"] = {
            "lengths": inputs["feature_attention_mask"].sum(-1).numpy(),
            "hashes": [_digest(item) for item in prompt.audios],
        }
    if prompt.use_audio_in_video:
        media["audio_in_video"] = True
    return media


def _embeddings(thinker: Any, inputs: Any) -> dict[str, Any]:
    with torch.no_grad():
        return _encoded(thinker, inputs)


def _encoded(thinker: Any, inputs: Any) -> dict[str, Any]:
    embeddings: dict[str, Any] = {}
    for kind, pixels in _KINDS.items():
        if pixels in inputs:
            grid = inputs[f"{kind}_grid_thw"]
            seen = thinker.visual(inputs[pixels], grid_thw=grid)
            embeddings[kind] = torch.cat([seen.pooler_output, *seen.deepstack_features], -1)
    if "input_features" in inputs:
        heard = thinker.get_audio_features(
            inputs["input_features"], inputs["feature_attention_mask"]
        )
        embeddings["audio"] = heard.last_hidden_state
    return embeddings


def _digest(array: np.ndarray[Any, Any]) -> str:
    content = f"{array.shape}{array.dtype}".encode() + np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(content).hexdigest()


def media_hidden_rows(oracle: Oracle, prompt: Prompt) -> Any:
    """Return what enters the talker's layer at the user's media positions, [rows, hidden]."""
    inputs, config = oracle.inputs(prompt), oracle.model.config
    with torch.no_grad():
        seen = oracle.model.thinker(
            **inputs, use_audio_in_video=prompt.use_audio_in_video, output_hidden_states=True
        )
    thinker = config.thinker_config
    placeholders = [thinker.image_token_id, thinker.video_token_id, thinker.audio_token_id]
    media = torch.isin(inputs["input_ids"][0], torch.tensor(placeholders))
    return seen.hidden_states[config.talker_config.accept_hidden_layer][0][media]
