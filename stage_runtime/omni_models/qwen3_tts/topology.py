"""The pipeline of Qwen3-TTS: one process, one GPU.

The vocoder is declared before the engine because declaration order is construction order: its
memory is taken before the engine sizes the KV cache from what is left.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from omni_config.schema import EngineStageConfig, Names, PipelineConfig, StageConfig, engine_of
from omni_config.settings import FactoryArgs
from omni_models.plan_only import STAGES_NOT_BUILT

FACTORIES = "omni_models.qwen3_tts.factories"
DEFAULT_RUNNING_REQUESTS = 64
DEFAULT_QUEUED_REQUESTS = 64


class Qwen3TTSPipelineConfig(PipelineConfig):
    """Text to speech: preprocessing, an engine that writes codec frames, and a vocoder."""

    architectures: ClassVar[Names] = ("Qwen3TTSForConditionalGeneration",)
    model_types: ClassVar[Names] = ("qwen3_tts",)
    plan_only: ClassVar[str | None] = STAGES_NOT_BUILT
    admission_defaults: ClassVar[dict[str, int]] = {
        "max_running_requests": DEFAULT_RUNNING_REQUESTS,
        "max_queued_requests": DEFAULT_QUEUED_REQUESTS,
    }

    enable_deterministic_inference: bool = Field(
        False, description="Same text, same speech, whatever else runs in the batch; slower."
    )

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the three stages."""
        return (
            StageConfig(
                name="preprocessing",
                factory_path=f"{FACTORIES}.create_preprocessing",
                process="pipeline",
                next=("tts_engine",),
            ),
            StageConfig(
                name="vocoder",
                factory_path=f"{FACTORIES}.create_vocoder",
                process="pipeline",
                gpu=0,
                factory=FactoryArgs(dtype="bfloat16"),
                can_accept_stream_before_payload=True,
                terminal=True,
            ),
            EngineStageConfig(
                name="tts_engine",
                factory_path=f"{FACTORIES}.create_tts_engine",
                process="pipeline",
                gpu=0,
                factory=FactoryArgs(dtype="bfloat16"),
                next=("vocoder",),
                stream_to=("vocoder",),
            ),
        )

    def stage_factory_kwargs(self, stage: StageConfig) -> dict[str, object]:
        """Return what follows from the layout and from `enable_deterministic_inference`."""
        match stage.name:
            case "preprocessing":
                return self._preprocessing_kwargs(stage)
            case "vocoder":
                return self._vocoder_kwargs(stage)
            case "tts_engine" if self.enable_deterministic_inference:
                return {"server_args_overrides": {"enable_deterministic_inference": True}}
            case _:
                return {}

    def _preprocessing_kwargs(self, stage: StageConfig) -> dict[str, object]:
        kwargs: dict[str, object] = {}
        if not self._with_engine(stage):
            kwargs["load_frontend"] = True
        if self.enable_deterministic_inference:
            kwargs["max_concurrency"] = 1
        return kwargs

    def _vocoder_kwargs(self, stage: StageConfig) -> dict[str, object]:
        engine = self.by_name["tts_engine"]
        streams = engine_of(engine).max_running_requests or DEFAULT_RUNNING_REQUESTS
        if not self._with_engine(stage):
            streams *= self.replicas(engine)
        kwargs: dict[str, object] = {"running_stream_count": streams}
        if self.enable_deterministic_inference:
            kwargs |= {
                "enable_deterministic_inference": True,
                "initial_cuda_graph": False,
                "followup_cuda_graph": False,
            }
        return kwargs

    def _with_engine(self, stage: StageConfig) -> bool:
        return stage.process_name == self.by_name["tts_engine"].process_name


PIPELINES = (Qwen3TTSPipelineConfig,)
