"""What each receiver gets of a payload: what it reads, and no media it does not.

Pixels and spectra are large; they go to the encoder that needs them and nowhere else. The other
stages only have to know which encoders to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omni_models.qwen3_omni.routing import MEDIA_KEYS, active_encoders
from omni_wire.errors import StageFailed
from omni_wire.messages import Payload, Tree

Inputs = Mapping[str, Mapping[str, Tree]]


def without_media(payload: Payload) -> Payload:
    """Hook `project_payload` of preprocessing towards every stage that gathers."""
    data, inputs = _read(payload)
    active = active_encoders(inputs)
    marks: dict[str, Tree] = {
        stage: {"_active": True} if stage in active else {"_skip": True} for stage in MEDIA_KEYS
    }
    return replace(payload, data={**data, "encoder_inputs": marks})


def image_inputs(payload: Payload) -> Payload:
    """Hook `project_payload` of preprocessing towards the image encoder."""
    return _own_inputs(payload, "image_encoder")


def audio_inputs(payload: Payload) -> Payload:
    """Hook `project_payload` of preprocessing towards the audio encoder."""
    return _own_inputs(payload, "audio_encoder")


def without_embeddings(payload: Payload) -> Payload:
    """Hook `project_payload` of the encoders towards the talker, which reads none of them."""
    return replace(payload, data={})


def _own_inputs(payload: Payload, stage: str) -> Payload:
    _, inputs = _read(payload)
    return replace(payload, data={"encoder_inputs": {stage: inputs[stage]}})


def _read(payload: Payload) -> tuple[Mapping[str, Tree], Inputs]:
    data = payload.data if isinstance(payload.data, Mapping) else {}
    inputs = data.get("encoder_inputs")
    if not isinstance(inputs, Mapping):
        raise StageFailed("the payload has no encoder_inputs")
    return data, inputs  # type: ignore[return-value]  # routing has checked what is in it
