"""Starting the one engine of a process."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omni_config.errors import OmniError
from omni_runtime.logging import EventLogger
from omni_runtime.sglang_bridge.arguments import (
    loses_precision,
    processor_shares,
    server_arguments,
)
from omni_runtime.sglang_bridge.contract import SEAMS, Seam, check_seams
from omni_runtime.sglang_bridge.gloo_loop import share_gloo_loop
from omni_runtime.sglang_bridge.kv_budget import KvBudget
from omni_runtime.sglang_bridge.no_compiler import leave_uncompiled
from omni_runtime.sglang_bridge.platform_plugin import CPU_PLATFORM, PLATFORM_VARIABLE
from omni_runtime.sglang_bridge.weight_glob import covering_glob
from omni_runtime.weight_share.checkpoint import checkpoint_fact
from omni_runtime.weight_share.offer import offered_share

if TYPE_CHECKING:
    from omni_runtime.sglang_bridge.hosted_scheduler import Host, HostedScheduler
    from omni_runtime.sglang_bridge.prefill_gathering import PrefillGathering
    from omni_runtime.sglang_bridge.row_sampler import LogitsEditor
    from omni_runtime.sglang_bridge.stop_texts import StopTexts

logger = EventLogger(__name__)

_started: list[str] = []


class SecondEngine(OmniError):
    """SGLang keeps its configuration per process, so a process can hold one engine only."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What an engine is started with.

    Attributes:
        stage: for messages.
        model_path: folder or hub id of the checkpoint.
        models: package with a module `config`, which registers the parser, and `model`.
        seams: what that package takes from SGLang.
        config_parser: name of that parser.
        weight_files: files of the checkpoint that hold weights of the stage; of the others as few
            as possible are read.
        gpu_id: device, None for the CPU.
        checkpoint_dtype: torch dtype of the weights, such as `bfloat16`; on the CPU the engine
            computes in it where nobody wrote another.
        overrides: `engine.*` as written; they win over everything the bridge sets.
        defaults: what the stage needs where nobody wrote anything.
        model_stops: tokens that end every answer.
        tokenizer: checks stop texts; None where no request can have any.
        budget: what the KV pool may take.
        editor: the model's own change of logits.
        gathering: when prefills wait for company.
        overlap_min_batch: rows from which a decode step is prepared while the last one runs.
        tp_rank, tp_size, nccl_port: the ranks, from the launcher.
    """

    stage: str
    model_path: str
    models: str
    seams: tuple[Seam, ...]
    config_parser: str
    weight_files: tuple[str, ...]
    gpu_id: int | None
    checkpoint_dtype: str
    overrides: Mapping[str, object]
    defaults: Mapping[str, object]
    model_stops: frozenset[int]
    tokenizer: StopTexts | None = None
    budget: KvBudget | None = None
    editor: LogitsEditor | None = None
    gathering: PrefillGathering | None = None
    overlap_min_batch: int = 1
    tp_rank: int = 0
    tp_size: int = 1
    nccl_port: int | None = None


def start_engine(plan: EnginePlan, host: Host) -> HostedScheduler:
    """Load the model, size its pools, check the seams and return the hosted scheduler.

    Raises:
        SecondEngine: the process has an engine already.
        SeamBroken: this SGLang lacks something the bridge relies on.
        NoKvHeadroom: the stage's share of the device is used up before its KV cache.
        WeightShareError: weights are to be shared with another copy and cannot be.
    """
    if _started:
        raise SecondEngine(
            f"stage '{plan.stage}' cannot start an engine: '{_started[0]}' has one in this "
            "process; put them into different processes"
        )
    _started.append(plan.stage)
    _prepare_environment(plan)
    from sglang.srt.plugins import load_plugins

    load_plugins()
    check_seams((*SEAMS, *plan.seams))
    importlib.import_module(f"{plan.models}.config")
    model = importlib.import_module(f"{plan.models}.model").EntryClass
    # SGLang's own hook; without it every process would read the whole checkpoint.
    pattern = covering_glob(plan.weight_files)
    model.allow_patterns_overrides = None if pattern is None else [pattern]
    return _construct(plan, host)


def _prepare_environment(plan: EnginePlan) -> None:
    """Set what SGLang reads from the environment at import time."""
    os.environ["SGLANG_EXTERNAL_MODEL_PACKAGE"] = plan.models
    if plan.gpu_id is None:
        os.environ[PLATFORM_VARIABLE] = CPU_PLATFORM
        leave_uncompiled()
        share_gloo_loop()
        if plan.tp_size > 1:
            shares = processor_shares(sorted(os.sched_getaffinity(0)), plan.tp_size)
            os.environ.setdefault("SGLANG_CPU_OMP_THREADS_BIND", shares)


def _construct(plan: EnginePlan, host: Host) -> HostedScheduler:
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import PortArgs, ServerArgs

    from omni_runtime.sglang_bridge.hosted_scheduler import HostedScheduler
    from omni_runtime.sglang_bridge.shared_loader import shared_loading

    if loses_precision(plan):
        logger.warning(
            "the checkpoint is float32, and SGLang computes in float16 on a GPU: write "
            "engine.dtype: float32 for exact answers",
            stage=plan.stage,
        )
    args = ServerArgs(**server_arguments(plan))
    args.resolve_once()
    ports = PortArgs.init_new(args)
    if plan.nccl_port is not None:
        ports = dataclasses.replace(ports, nccl_port=plan.nccl_port)
    # On a CPU SGLang numbers places instead: the rank's share of the processors.
    place = plan.tp_rank if plan.gpu_id is None else plan.gpu_id
    ranks = SpawnRanks(world_rank=plan.tp_rank, dp_rank=None, gpu_id=place)
    publish(args, role="scheduler", ranks=ranks)
    facts = {"checkpoint": checkpoint_fact(plan.model_path, plan.weight_files)}
    with shared_loading(offered_share(), facts):
        return HostedScheduler(
            args,
            ports,
            host,
            model_stops=plan.model_stops,
            tokenizer=plan.tokenizer,
            budget=plan.budget,
            editor=plan.editor,
            gathering=plan.gathering,
            overlap_min_batch=plan.overlap_min_batch,
        )
