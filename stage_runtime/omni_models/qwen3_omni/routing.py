"""Where the parts of a Qwen3-Omni request go.

Two facts decide everything: whether speech is wanted, and which encoders have something to encode.
Both are computed here and nowhere else, and every hook below derives from them, so a sender and
whoever waits for it cannot disagree: preprocessing sends to an encoder exactly when thinker and
talker wait for that encoder.

The hooks named in `topology` are the functions that take a payload. They read, and never write,
`payload.request.metadata["output_modalities"]` and `payload.data["encoder_inputs"]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from omni_config.errors import OmniError

EncoderInputs = Mapping[str, Mapping[str, object] | None]
"""What preprocessing found for each encoder, by stage name; a stage without input may be absent."""

MEDIA_KEYS = {
    "image_encoder": ("pixel_values", "pixel_values_videos"),
    "audio_encoder": ("input_features",),
}
"""Inputs that make an encoder active, by stage name, in the order in which stages are declared."""


class Request(Protocol):
    """What routing reads of a request."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """Holds `output_modalities`: absent, a name, or a list of names."""


class Payload(Protocol):
    """What routing reads of a payload."""

    @property
    def request(self) -> Request | None:
        """The request that the payload belongs to; this model's stages never drop it."""

    @property
    def data(self) -> object:
        """A mapping that holds `encoder_inputs` once preprocessing is done."""


class UnroutableRequest(OmniError):
    """A request or payload lacks what routing reads, or holds something else in its place."""


def should_generate_audio_output(output_modalities: str | Iterable[str] | None) -> bool:
    """Return whether speech is wanted: audio is among the modalities, or none were named."""
    if output_modalities is None:
        return True
    wanted = [output_modalities] if isinstance(output_modalities, str) else output_modalities
    return any(modality.lower() == "audio" for modality in wanted)


def active_encoders(encoder_inputs: EncoderInputs) -> tuple[str, ...]:
    """Return the encoders that have something to encode, in declaration order.

    An encoder is active when one of its inputs is there. `_skip` switches it off; `_active`, which
    stands for inputs that were left out of this copy of the payload, switches it on.
    """
    return tuple(
        stage
        for stage in MEDIA_KEYS
        if _is_active(encoder_inputs.get(stage) or {}, MEDIA_KEYS[stage])
    )


def preprocessing_next(encoder_inputs: EncoderInputs, speech: bool) -> tuple[str, ...]:
    """Return whom preprocessing sends to in the speech pipelines."""
    return (*active_encoders(encoder_inputs), *readers(speech))


def preprocessing_next_text(encoder_inputs: EncoderInputs) -> tuple[str, ...]:
    """Return whom preprocessing sends to in the text pipeline."""
    return (*active_encoders(encoder_inputs), "mm_aggregate")


def readers(speech: bool) -> tuple[str, ...]:
    """Return the stages that gather preprocessing and encoder outputs; encoders send to these."""
    return ("thinker", "talker_ar") if speech else ("thinker",)


def stream_done_targets(speech: bool) -> tuple[str, ...]:
    """Return who learns that the thinker's stream ended."""
    return ("talker_ar", "decode") if speech else ("decode",)


def terminals(speech: bool) -> tuple[str, ...]:
    """Return the stages whose output completes the request."""
    return ("decode", "code2wav") if speech else ("decode",)


def wait_sources(source: str, encoder_inputs: EncoderInputs) -> tuple[str, ...] | None:
    """Return whose payloads a gathering stage awaits, or null while that is unknown.

    Only the payload of preprocessing tells: an encoder knows about itself alone.
    """
    if source != "preprocessing":
        return None
    return ("preprocessing", *active_encoders(encoder_inputs))


def route_preprocessing(payload: Payload) -> tuple[str, ...]:
    """Hook `route_fn` of preprocessing in the speech pipelines."""
    return preprocessing_next(_encoder_inputs(payload), _speech(payload.request))


def route_preprocessing_text(payload: Payload) -> tuple[str, ...]:
    """Hook `route_fn` of preprocessing in the text pipeline."""
    return preprocessing_next_text(_encoder_inputs(payload))


def route_encoder(payload: Payload) -> tuple[str, ...]:
    """Hook `route_fn` of both encoders in the speech pipelines."""
    return readers(_speech(payload.request))


def thinker_stream_done(payload: Payload) -> tuple[str, ...]:
    """Hook `stream_done_to_fn` of the thinker in the speech pipelines."""
    return stream_done_targets(_speech(payload.request))


def awaited_sources(request: object, source: str, payload: Payload) -> tuple[str, ...] | None:
    """Hook `wait_for_fn` of the stages that gather."""
    return wait_sources(source, _encoder_inputs(payload))


def expected_terminals(request: Request) -> tuple[str, ...]:
    """Hook `terminal_stages_fn` of the speech pipelines."""
    return terminals(_speech(request))


def _is_active(inputs: Mapping[str, object], keys: tuple[str, ...]) -> bool:
    if inputs.get("_active") is True:
        return True
    return not inputs.get("_skip") and any(inputs.get(key) is not None for key in keys)


def _speech(request: Request | None) -> bool:
    if request is None:
        raise UnroutableRequest("the payload came without its request")
    wanted = request.metadata.get("output_modalities")
    if wanted is None or isinstance(wanted, str):
        return should_generate_audio_output(wanted)
    if not isinstance(wanted, Iterable) or not all(isinstance(name, str) for name in wanted):
        raise UnroutableRequest(
            f"output_modalities must be a name or a list of names, got {wanted!r}"
        )
    return should_generate_audio_output(wanted)


def _encoder_inputs(payload: Payload) -> EncoderInputs:
    data = payload.data if isinstance(payload.data, Mapping) else {}
    inputs = data.get("encoder_inputs") or {}
    if not isinstance(inputs, Mapping) or not all(
        value is None or isinstance(value, Mapping) for value in inputs.values()
    ):
        raise UnroutableRequest("encoder_inputs must map each stage to its inputs by name")
    return inputs
