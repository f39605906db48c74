"""Everything a request may say besides its messages, checked before any work is done for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from omni_models.media.videos import Sampling
from omni_models.qwen3_omni.code2wav.windows import Delivery, Ramp
from omni_models.qwen3_omni.parameters import (
    refuse_unknown,
    speaker_of,
    talker_sampling,
    thinker_sampling,
)
from omni_models.qwen3_omni.preprocessing.conversation import LISTS
from omni_models.qwen3_omni.routing import should_generate_audio_output
from omni_models.structured.grammars import grammar_of
from omni_models.structured.wishes import Structure, structure_of
from omni_runtime.sglang_bridge.sampling import Grammar
from omni_runtime.sglang_bridge.sampling import Sampling as TextSampling
from omni_wire.errors import InvalidRequest
from omni_wire.messages import RequestView, Tree

MODALITIES = ("text", "audio")

INPUTS = (
    "messages",
    *LISTS,
    "use_audio_in_video",
    "video_fps",
    "video_max_frames",
    "video_min_pixels",
    "video_max_pixels",
)

MAX_FPS = 60.0


@dataclass(frozen=True, slots=True)
class VideoSettings:
    """How videos are looked at.

    Attributes:
        sampling: which frames are taken.
        min_pixels, max_pixels: to which frames are resized; the processor's own when None.
        heard: whether the sound track counts.
    """

    sampling: Sampling = field(default_factory=Sampling)
    min_pixels: int | None = None
    max_pixels: int | None = None
    heard: bool = False


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request asks of preprocessing.

    Attributes:
        tools: what may be called, for the chat template.
        grammar: what the answer must look like.
        max_tokens: tokens of the answer that the client asks for; None where it leaves that open.
    """

    video: VideoSettings
    tools: tuple[Mapping[str, object], ...]
    grammar: Grammar | None
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class WishReader:
    """Reads wishes under the settings of a deployment.

    Attributes:
        speakers: codec token of each speaker.
        speaks: whether the pipeline has a talker.
        video: settings of a request that has none of its own.
        tool_call_parser: the model's format of calls; None where it calls nothing.
    """

    speakers: Mapping[str, int]
    speaks: bool
    video: VideoSettings
    tool_call_parser: str | None = None

    def read(self, request: RequestView) -> Wishes:
        """Check a whole request.

        Raises:
            InvalidRequest: a name or value is not among those accepted, which are listed.
        """
        _refuse_others(request.inputs, INPUTS, "inputs")
        self._check_modalities(request.metadata.get("output_modalities"))
        params = request.params
        refuse_unknown(params)
        sampling = thinker_sampling(params)
        talker_sampling(params)
        speaker_of(params, self.speakers)
        Delivery.parse(params, Ramp(1, 1))
        structure = structure_of(params)
        self._check_tools(structure, request.metadata.get("output_modalities"))
        grammar = grammar_of(structure, self.tool_call_parser)
        if grammar is not None:
            _refuse_beside_grammar(sampling)
        max_tokens = None if params.get("max_tokens") is None else sampling.max_tokens
        tools = tuple(tool.templated() for tool in structure.tools)
        return Wishes(self._video(request.inputs), tools, grammar, max_tokens)

    def _check_tools(self, structure: Structure, modalities: Tree) -> None:
        if not structure.tools:
            return
        if self.tool_call_parser is None:
            problem = "tools are not served here: the pipeline has no tool_call_parser"
            raise InvalidRequest(problem, details={"field": "tools"})
        if self.speaks and should_generate_audio_output(cast("Any", modalities)):
            problem = (
                "tools cannot be combined with speech, which would read calls aloud; ask for the "
                "modality text alone"
            )
            raise InvalidRequest(problem, details={"field": "tools"})

    def _check_modalities(self, wanted: Tree) -> None:
        if wanted is None:
            return
        names = (wanted,) if isinstance(wanted, str) else wanted
        accepted = MODALITIES if self.speaks else MODALITIES[:1]
        allowed = isinstance(names, list | tuple) and all(name in accepted for name in names)
        if not allowed or not names:
            rule = f"one or more of {', '.join(accepted)}"
            raise _wrong("output_modalities", rule, wanted)

    def _video(self, inputs: Mapping[str, Tree]) -> VideoSettings:
        default = self.video
        heard = inputs.get("use_audio_in_video")
        if heard is not None and not isinstance(heard, bool):
            raise _wrong("use_audio_in_video", "true or false", heard)
        smallest = _whole(inputs, "video_min_pixels", default.min_pixels)
        largest = _whole(inputs, "video_max_pixels", default.max_pixels)
        if smallest is not None and largest is not None and smallest > largest:
            raise _wrong("video_min_pixels", f"at most video_max_pixels ({largest})", smallest)
        sampling = Sampling(
            _fps(inputs, default.sampling.fps),
            _whole(inputs, "video_max_frames", default.sampling.max_frames) or 0,
        )
        return VideoSettings(sampling, smallest, largest, default.heard if heard is None else heard)


def _refuse_beside_grammar(sampling: TextSampling) -> None:
    """Refuse what would keep an answer from ending where its grammar does."""
    for name, given in (("min_tokens", sampling.min_tokens), ("ignore_eos", sampling.ignore_eos)):
        if given:
            problem = f"{name} cannot be combined with a grammar, which says where an answer ends"
            raise InvalidRequest(problem, details={"field": name})


def _fps(inputs: Mapping[str, Tree], default: float) -> float:
    value = inputs.get("video_fps")
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_FPS:
        raise _wrong("video_fps", f"above 0 and at most {MAX_FPS:g}", value)
    return float(value)


def _whole(inputs: Mapping[str, Tree], name: str, default: int | None) -> int | None:
    value = inputs.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(name, "a whole number from 1 on", value)
    return value


def _refuse_others(given: Mapping[str, Tree], accepted: tuple[str, ...], what: str) -> None:
    unknown = sorted(set(given) - set(accepted))
    if unknown:
        raise InvalidRequest(
            f"unknown {what} {', '.join(unknown)}; accepted are {', '.join(accepted)}",
            details={"field": unknown[0]},
        )


def _wrong(name: str, rule: str, value: object) -> InvalidRequest:
    return InvalidRequest(f"{name} must be {rule}, got {value!r}", details={"field": name})
