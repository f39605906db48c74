"""Building the talker stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transformers import AutoConfig

from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder
from omni_models.qwen3_omni.seams import TALKER_SEAMS
from omni_models.qwen3_omni.talker.frame_maker import FrameMaker
from omni_models.qwen3_omni.talker.program import Pacing, TalkerProgram
from omni_models.qwen3_omni.talker.prompt_rows import TalkerFacts
from omni_models.qwen3_omni.talker.row_source import TalkerRows
from omni_runtime.engine_budget import take_kv_cache_bytes
from omni_runtime.sglang_bridge.engine import EnginePlan, start_engine
from omni_runtime.sglang_bridge.engine_scheduler import EngineScheduler
from omni_runtime.sglang_bridge.kv_budget import budget_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MODELS = "omni_models.qwen3_omni.talker"
PARSER = "omnipipe_qwen3_omni_talker"

ENGINE_DEFAULTS: Mapping[str, object] = {
    # Every prompt is the same filler token to SGLang, so its prefix cache would match anything.
    "disable_radix_cache": True,
    # A row's next input is made of its last step's result.
    "disable_overlap_schedule": True,
    "chunked_prefill_size": -1,
    "enable_multimodal": False,
    # The code predictor reads the last hidden row of each step.
    "return_hidden_states_mode": "last",
    # Rows of prompts have no fixed address that a captured graph could read.
    "disable_prefill_cuda_graph": True,
}


@dataclass(frozen=True, slots=True)
class TalkerSettings:
    """What `factories.create_talker_ar` was called with; see there."""

    model_path: str
    max_running_requests: int
    gpu_id: int | None = None
    fraction: float | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    max_seq_len: int | None = None
    pacing: Pacing = field(default_factory=Pacing)


def build_talker(settings: TalkerSettings) -> EngineScheduler:
    """Load the model and return the stage's scheduler.

    Raises:
        SecondEngine: the process has an engine already.
        SeamBroken: this SGLang does not fit the bridge.
        NoKvHeadroom: the stage's share of its GPU leaves nothing for the KV cache.
        IncompleteCheckpoint: weights are missing.
    """
    folder = CheckpointFolder.open(settings.model_path)
    whole = AutoConfig.from_pretrained(folder.path)
    program = TalkerProgram(TalkerFacts.of(whole), settings.pacing)
    scheduler = EngineScheduler(program)
    hosted = start_engine(_plan(settings, folder, whole, program), scheduler)
    scheduler.hosted = hosted
    model = hosted.model
    model.speeches = program.speeches
    program.attach(TalkerRows(folder, model), FrameMaker.of(program.facts, model))
    return scheduler


def _plan(
    settings: TalkerSettings,
    folder: CheckpointFolder,
    whole: PretrainedConfig,
    program: TalkerProgram,
) -> EnginePlan:
    defaults = {**ENGINE_DEFAULTS, "max_running_requests": settings.max_running_requests}
    if settings.max_seq_len is not None:
        defaults["context_length"] = settings.max_seq_len
    return EnginePlan(
        stage="talker_ar",
        model_path=str(folder.path),
        models=MODELS,
        seams=TALKER_SEAMS,
        config_parser=PARSER,
        weight_files=folder.weight_files("talker."),
        gpu_id=settings.gpu_id,
        checkpoint_dtype=folder.dtype_name,
        overrides=settings.overrides,
        defaults=defaults,
        model_stops=frozenset({whole.talker_config.codec_eos_token_id}),
        budget=budget_of(take_kv_cache_bytes(), settings.fraction),
        editor=program,
    )
