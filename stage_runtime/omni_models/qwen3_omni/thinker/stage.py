"""Building the thinker stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from transformers import AutoConfig, AutoTokenizer

from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder
from omni_models.qwen3_omni.decode.vocabulary import Vocabulary
from omni_models.qwen3_omni.media_blocks import MediaLayout
from omni_models.qwen3_omni.seams import THINKER_SEAMS
from omni_models.qwen3_omni.segments import Roles
from omni_models.qwen3_omni.thinker.media_rows import MediaRows, MediaRowStore
from omni_models.qwen3_omni.thinker.program import ThinkerFacts, ThinkerProgram
from omni_models.structured.grammars import MAX_WHITESPACE
from omni_runtime.engine_budget import take_kv_cache_bytes
from omni_runtime.sglang_bridge.engine import EnginePlan, start_engine
from omni_runtime.sglang_bridge.engine_scheduler import EngineScheduler
from omni_runtime.sglang_bridge.kv_budget import budget_of
from omni_runtime.sglang_bridge.prefill_gathering import PrefillGathering
from omni_runtime.sglang_bridge.stop_texts import StopTexts

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from omni_runtime.sglang_bridge.hosted_scheduler import HostedScheduler

MODELS = "omni_models.qwen3_omni.thinker"
PARSER = "omnipipe_qwen3_omni_thinker"


@dataclass(frozen=True, slots=True)
class ThinkerSettings:
    """What `factories.create_thinker` was called with; see there."""

    model_path: str
    gpu_id: int | None = None
    fraction: float | None = None
    tp_rank: int = 0
    tp_size: int = 1
    nccl_port: int | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    speech_enabled: bool = False
    talker_mm_hidden: Literal["hf", "zeros"] = "hf"
    max_seq_len: int | None = None
    encoder_mem_reserve: float = 0.05
    overlapped: bool = True
    overlap_min_batch: int = 1
    gathering: PrefillGathering | None = None


def build_thinker(settings: ThinkerSettings) -> EngineScheduler:
    """Load the model and return the stage's scheduler.

    Raises:
        SecondEngine: the process has an engine already.
        SeamBroken: this SGLang does not fit the bridge.
        NoKvHeadroom: the stage's share of its GPU leaves nothing for the KV cache.
        IncompleteCheckpoint: weights are missing.
    """
    folder = CheckpointFolder.open(settings.model_path)
    whole = AutoConfig.from_pretrained(folder.path)
    captures = settings.speech_enabled and settings.talker_mm_hidden == "hf"
    program = ThinkerProgram(
        facts_of(whole), settings.speech_enabled, MediaRows() if captures else None
    )
    scheduler = EngineScheduler(program)
    hosted = start_engine(_plan(settings, folder, whole, captures), scheduler)
    scheduler.hosted = hosted
    if program.media_rows is not None:
        hosted.model.media_rows = program.media_rows
        program.store = _store(hosted, whole)
    return scheduler


def facts_of(whole: PretrainedConfig) -> ThinkerFacts:
    """Read what the program needs of a checkpoint's configuration."""
    thinker = whole.thinker_config
    merge = thinker.vision_config.spatial_merge_size
    layout = MediaLayout.of(thinker, merge, thinker.audio_config.n_window)
    return ThinkerFacts(layout, Roles.of(whole), thinker.text_config.vocab_size)


def _plan(
    settings: ThinkerSettings, folder: CheckpointFolder, whole: PretrainedConfig, captures: bool
) -> EnginePlan:
    defaults: dict[str, object] = {"constrained_json_max_whitespace_cnt": MAX_WHITESPACE}
    if captures:
        # A replayed graph would not hand out the rows that enter a layer.
        defaults["disable_prefill_cuda_graph"] = True
    if not settings.overlapped:
        defaults["disable_overlap_schedule"] = True
    if settings.max_seq_len is not None:
        defaults["context_length"] = settings.max_seq_len
    return EnginePlan(
        stage="thinker",
        model_path=str(folder.path),
        models=MODELS,
        seams=THINKER_SEAMS,
        config_parser=PARSER,
        weight_files=folder.weight_files("thinker.model.", "thinker.lm_head."),
        gpu_id=settings.gpu_id,
        checkpoint_dtype=folder.dtype_name,
        overrides=settings.overrides,
        defaults=defaults,
        model_stops=frozenset({whole.im_end_token_id}),
        tokenizer=_tokenizer(folder, whole),
        budget=budget_of(
            take_kv_cache_bytes(),
            settings.fraction,
            reserve=settings.encoder_mem_reserve,
            static_fraction_written="mem_fraction_static" in settings.overrides,
        ),
        # Ranks must start the same prefill in the same pass, whatever their clocks say.
        gathering=settings.gathering if settings.tp_size == 1 else None,
        overlap_min_batch=settings.overlap_min_batch,
        tp_rank=settings.tp_rank,
        tp_size=settings.tp_size,
        nccl_port=settings.nccl_port,
    )


def _tokenizer(folder: CheckpointFolder, whole: PretrainedConfig) -> StopTexts:
    vocabulary = Vocabulary.read(folder.path)
    size = whole.thinker_config.text_config.vocab_size
    pieces = [vocabulary.text_bytes(token) for token in range(size)]
    return StopTexts(AutoTokenizer.from_pretrained(folder.path), pieces)


def _store(hosted: HostedScheduler, whole: PretrainedConfig) -> MediaRowStore:
    width = whole.thinker_config.text_config.hidden_size
    # Slot 0 is where SGLang writes what nobody reads, so there is one more than tokens.
    slots = hosted.max_total_num_tokens + hosted.page_size
    dtype: torch.dtype = hosted.model_config.dtype
    return MediaRowStore(slots, width, dtype)
