"""The pipelines of Qwen3-Omni: text only, speech on two GPUs, and speech on one.

Thinker writes text, talker turns the growing text into codec frames, code2wav turns frames into
sound. The text pipeline gathers encoder outputs in a stage of its own; in the speech pipelines
thinker and talker each gather them, because both need them and neither should wait for the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from omni_config.errors import Problem
from omni_config.schema import (
    CPU_COUNT,
    ChatFeature,
    EngineStageConfig,
    Names,
    PipelineConfig,
    StageConfig,
    engine_of,
)
from omni_config.settings import FactoryArgs, PlacementConfig
from omni_models.qwen3_omni.parameters import CODE2WAV_PARAMS, TALKER_PARAMS, THINKER_PARAMS
from omni_models.qwen3_omni.placement_policy import (
    colocated_problems,
    gathering_problems,
    separate_problems,
)

if TYPE_CHECKING:
    from omni_config.planning.placement import PlacementPlan

FACTORIES = "omni_models.qwen3_omni.factories"
ROUTING = "omni_models.qwen3_omni.routing"
FAN_IN = "omni_models.qwen3_omni.fan_in"
PROJECTION = "omni_models.qwen3_omni.projection"
WARM_UP = "omni_models.qwen3_omni.warm_up"

THINKER_SETTINGS = {name: name for name in THINKER_PARAMS}
SPEECH_SETTINGS = {
    "thinker": THINKER_SETTINGS,
    "talker_ar": {name.removeprefix("talker_"): name for name in TALKER_PARAMS},
    "code2wav": {name: name for name in CODE2WAV_PARAMS},
}
"""Names of parameters in a request, by each stage's own word for them."""

ENCODERS = ("image_encoder", "audio_encoder")
GATHERED = ("preprocessing", *ENCODERS)
TOOL_CALL_PARSER = "qwen25"
"""SGLang's name of the format in which the model was taught to call tools."""
TALKER_RUNNING_REQUESTS = 32
CODE2WAV_FRACTION = 0.02


class _Qwen3OmniPipelineConfig(PipelineConfig):
    """What every pipeline of the model shares."""

    architectures: ClassVar[Names] = ("Qwen3OmniMoeForConditionalGeneration",)
    model_types: ClassVar[Names] = ("qwen3_omni_moe",)
    tensor_parallel_stages: ClassVar[Names] = ("thinker",)
    weight_share_architectures: ClassVar[Names] = ("Qwen3OmniMoeForConditionalGeneration",)
    audio_sample_rate: ClassVar[int] = 24_000
    chat_features: ClassVar[tuple[ChatFeature, ...]] = (
        "tools",
        "response_format",
        "logprobs",
        "logit_bias",
    )
    env_floor: ClassVar[dict[str, str]] = {"SGLANG_JIT_DEEPGEMM_PRECOMPILE": "0"}
    refused_factory_keys: ClassVar[dict[str, str]] = {
        **dict.fromkeys(
            (
                "thinker.request_build_max_workers",
                "thinker.request_build_max_pending",
                "thinker.prefill_coalesce_requires_pending_builds",
                "thinker.prefill_coalesce_after_builds_during_decode",
            ),
            "requests are built in the engine's own loop, in less time than a step takes: there "
            "are no builders, and no build is ever pending",
        ),
        **dict.fromkeys(
            ("audio_encoder.enable_layer_cuda_graph", "code2wav.enable_cuda_graph"),
            "only SGLang's engines replay CUDA graphs: this stage runs its model as it is",
        ),
        **dict.fromkeys(
            ("code2wav.talker_in_process", "talker_ar.code2wav_in_process"),
            "whether stages share a process follows from their `process`",
        ),
    }

    # The model's own policy below says which stages need a budget; the generic rule would also
    # refuse the two-GPU speech pipeline, whose encoders have none.
    placement: PlacementConfig = Field(
        PlacementConfig(require_memory_fraction_for_colocation=False),
        description="Limits every GPU must keep.",
    )

    def derived_engine(self, stage: StageConfig) -> dict[str, object]:
        """Switch SGLang's all-reduce off between ranks: it needs peer access everywhere."""
        return {"disable_custom_all_reduce": True} if stage.tp_size > 1 else {}

    def placement_problems(self, placement: PlacementPlan) -> list[Problem]:
        """Let ranks depend on no clock."""
        return list(gathering_problems(self))

    def stage_env(self, stage: StageConfig) -> dict[str, str]:
        """Let preprocessing, which decodes and resizes media, use every CPU."""
        written = self.env_floor | self.env_defaults
        if stage.name != "preprocessing" or "OMP_NUM_THREADS" in written:
            return {}
        return {"OMP_NUM_THREADS": CPU_COUNT}


class Qwen3OmniPipelineConfig(_Qwen3OmniPipelineConfig):
    """Everything in, text out: six stages in one process on one GPU."""

    variant: ClassVar[str | None] = "text"
    default_variant: ClassVar[bool] = False
    stage_parameters: ClassVar[dict[str, dict[str, str]]] = {"thinker": THINKER_SETTINGS}
    terminal_modalities: ClassVar[dict[str, str]] = {"decode": "text"}
    warm_up_fn: ClassVar[str | None] = f"{WARM_UP}.text_requests"

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the six stages."""
        process = "pipeline"
        return (
            StageConfig(
                name="preprocessing",
                factory_path=f"{FACTORIES}.create_preprocessing",
                process=process,
                next=(*ENCODERS, "mm_aggregate"),
                route_fn=f"{ROUTING}.route_preprocessing_text",
                project_payload=_projections(("mm_aggregate",)),
            ),
            _image_encoder(process, ("mm_aggregate",), route_fn=None),
            _audio_encoder(process, ("mm_aggregate",), route_fn=None),
            StageConfig(
                name="mm_aggregate",
                factory_path=f"{FACTORIES}.create_mm_aggregate",
                process=process,
                gpu=0,
                next=("thinker",),
                wait_for=GATHERED,
                wait_for_fn=f"{ROUTING}.awaited_sources",
                merge_fn=f"{FAN_IN}.merge_thinker_inputs",
            ),
            EngineStageConfig(
                name="thinker",
                factory_path=f"{FACTORIES}.create_thinker",
                process=process,
                gpu=0,
                factory=FactoryArgs(enable_async_decode=True),
                next=("decode",),
                stream_to=("decode",),
            ),
            _decode(process),
        )

    def stage_factory_kwargs(self, stage: StageConfig) -> dict[str, object]:
        """Tell preprocessing that this pipeline only writes, and how it calls tools."""
        if stage.name != "preprocessing":
            return {}
        return {"speech_enabled": False, "tool_call_parser": _tool_call_parser(self)}


class Qwen3OmniSpeechPipelineConfig(_Qwen3OmniPipelineConfig):
    """Everything in, text and speech out: seven processes, the talker on its own GPU."""

    variant: ClassVar[str | None] = "speech"
    terminal_stages_fn: ClassVar[str | None] = f"{ROUTING}.expected_terminals"
    stage_parameters: ClassVar[dict[str, dict[str, str]]] = SPEECH_SETTINGS
    terminal_modalities: ClassVar[dict[str, str]] = {"decode": "text", "code2wav": "audio"}
    warm_up_fn: ClassVar[str | None] = f"{WARM_UP}.speech_requests"

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the seven stages."""
        return _speech_stages(talker_gpu=1, code2wav_process="code2wav")

    def stage_factory_kwargs(self, stage: StageConfig) -> dict[str, object]:
        """Return what stages must know about each other."""
        code2wav, talker = self.by_name["code2wav"], self.by_name["talker_ar"]
        together = code2wav.process_name == talker.process_name
        running = _running_requests(talker)
        match stage.name:
            case "preprocessing":
                return {"tool_call_parser": _tool_call_parser(self)}
            case "thinker":
                return {"speech_enabled": True}
            case "talker_ar":
                return {"max_running_requests": running}
            case "code2wav":
                speakers = 1 if together else self.replicas(talker)
                return {"codec_state_slots": running * speakers}
            case _:
                return {}

    def placement_problems(self, placement: PlacementPlan) -> list[Problem]:
        """Keep thinker and talker on different GPUs as well."""
        return [*super().placement_problems(placement), *separate_problems(placement)]


class Qwen3OmniSpeechColocatedPipelineConfig(Qwen3OmniSpeechPipelineConfig):
    """The speech pipeline on one GPU, with code2wav in the talker's process."""

    variant: ClassVar[str | None] = "speech-colocated"
    default_variant: ClassVar[bool] = False
    env_floor: ClassVar[dict[str, str]] = {
        **_Qwen3OmniPipelineConfig.env_floor,
        "OMP_NUM_THREADS": "8",
        "TOKENIZERS_PARALLELISM": "false",
    }

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the seven stages."""
        return _speech_stages(talker_gpu=0, code2wav_process="talker_ar")

    def placement_problems(self, placement: PlacementPlan) -> list[Problem]:
        """Demand one GPU, one copy of everything and a budget of each stage on the GPU."""
        return colocated_problems(placement)


def _speech_stages(talker_gpu: int, code2wav_process: str) -> tuple[StageConfig, ...]:
    readers = ("thinker", "talker_ar")
    return (
        StageConfig(
            name="preprocessing",
            factory_path=f"{FACTORIES}.create_preprocessing",
            process="preprocessing",
            next=(*ENCODERS, *readers),
            route_fn=f"{ROUTING}.route_preprocessing",
            project_payload=_projections(readers),
        ),
        _image_encoder("image_encoder", readers, route_fn=f"{ROUTING}.route_encoder"),
        _audio_encoder("audio_encoder", readers, route_fn=f"{ROUTING}.route_encoder"),
        EngineStageConfig(
            name="thinker",
            factory_path=f"{FACTORIES}.create_thinker",
            process="thinker",
            gpu=0,
            factory=FactoryArgs(enable_async_decode=True),
            next=("decode",),
            stream_to=("talker_ar", "decode"),
            stream_done_to_fn=f"{ROUTING}.thinker_stream_done",
            wait_for=GATHERED,
            wait_for_fn=f"{ROUTING}.awaited_sources",
            merge_fn=f"{FAN_IN}.merge_thinker_inputs",
        ),
        _decode("decode"),
        EngineStageConfig(
            name="talker_ar",
            factory_path=f"{FACTORIES}.create_talker_ar",
            process="talker_ar",
            gpu=talker_gpu,
            factory=_talker_factory(),
            next=("code2wav",),
            stream_to=("code2wav",),
            can_accept_stream_before_payload=True,
            wait_for=GATHERED,
            wait_for_fn=f"{ROUTING}.awaited_sources",
            merge_fn=f"{FAN_IN}.merge_talker_inputs",
        ),
        StageConfig(
            name="code2wav",
            factory_path=f"{FACTORIES}.create_code2wav",
            process=code2wav_process,
            gpu=0,
            gpu_memory_fraction=CODE2WAV_FRACTION,
            can_accept_stream_before_payload=True,
            terminal=True,
        ),
    )


def _image_encoder(process: str, readers: Names, route_fn: str | None) -> StageConfig:
    return StageConfig(
        name="image_encoder",
        factory_path=f"{FACTORIES}.create_image_encoder",
        process=process,
        gpu=0,
        next=readers,
        route_fn=route_fn,
        project_payload=_without_embeddings(readers),
    )


def _audio_encoder(process: str, readers: Names, route_fn: str | None) -> StageConfig:
    return StageConfig(
        name="audio_encoder",
        factory_path=f"{FACTORIES}.create_audio_encoder",
        process=process,
        gpu=0,
        next=readers,
        route_fn=route_fn,
        project_payload=_without_embeddings(readers),
    )


def _projections(gathering: Names) -> dict[str, str]:
    """What preprocessing sends to whom."""
    return {
        "image_encoder": f"{PROJECTION}.image_inputs",
        "audio_encoder": f"{PROJECTION}.audio_inputs",
        **dict.fromkeys(gathering, f"{PROJECTION}.without_media"),
    }


def _without_embeddings(readers: Names) -> dict[str, str]:
    return {
        reader: f"{PROJECTION}.without_embeddings" for reader in readers if reader == "talker_ar"
    }


def _decode(process: str) -> StageConfig:
    return StageConfig(
        name="decode",
        factory_path=f"{FACTORIES}.create_decode",
        process=process,
        factory=FactoryArgs.model_validate({"tool_call_parser": TOOL_CALL_PARSER}),
        can_accept_stream_before_payload=True,
        terminal=True,
    )


def _talker_factory() -> FactoryArgs:
    """Speak after the first token and send early frames singly: sound comes sooner."""
    return FactoryArgs.model_validate(
        {
            "enable_partial_start": True,
            "partial_start_min_chunks": 1,
            "codec_coalesce_frames": 10,
            "codec_coalesce_early_frames": 10,
            "codec_coalesce_first_frames": 0,
        }
    )


def _tool_call_parser(config: PipelineConfig) -> object:
    """Return the format of calls, which is set where they are read."""
    return config.by_name["decode"].factory.free_keys().get("tool_call_parser")


def _running_requests(talker: StageConfig) -> int:
    written = talker.factory.free_keys().get("max_running_requests")
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    return engine_of(talker).max_running_requests or TALKER_RUNNING_REQUESTS


PIPELINES = (
    Qwen3OmniSpeechPipelineConfig,
    Qwen3OmniPipelineConfig,
    Qwen3OmniSpeechColocatedPipelineConfig,
)
