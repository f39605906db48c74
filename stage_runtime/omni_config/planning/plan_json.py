"""A plan as plain values, under the names of the API: what `omni plan -o json` prints."""

from __future__ import annotations

from omni_config.planning.mps import MpsDecision
from omni_config.planning.placement import GpuPlan
from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.processes import ProcessGroup
from omni_config.planning.weight_share import WeightShareDecision


def plan_json(runtime: PipelineRuntime) -> dict[str, object]:
    """Return the plan of a pipeline as JSON values."""
    config, processes = runtime.config, runtime.process_plan
    return {
        "pipeline": config.display_name,
        "config_cls": config.config_cls,
        "model_path": config.model_path,
        "plan_only": config.plan_only,
        "entry": config.entry,
        "terminals": list(config.terminals),
        "groups": [_group(group) for group in processes.groups],
        "tp_processes": {stage: list(names) for stage, names in processes.tp_processes.items()},
        "tp_groups": [_rank(group) for group in processes.tp_groups],
        "gpus": {str(gpu.gpu_id): _gpu(gpu) for gpu in runtime.placement_plan.gpus.values()},
        "replicas": {
            stage: list(names) for stage, names in runtime.replica_topology.replicas.items()
        },
        "mps": _mps(runtime.mps),
        "weight_share": _weight_share(runtime.weight_share),
        "run_directory": runtime.endpoints.run_directory,
        "endpoints": dict(runtime.endpoints.addresses),
        "max_in_flight": runtime.max_in_flight,
        "warnings": list(runtime.warnings),
    }


def _group(group: ProcessGroup) -> dict[str, object]:
    return {
        "name": group.name,
        "gpu_id": group.gpu_id,
        "stage_names": list(group.stage_names),
    }


def _rank(group: ProcessGroup) -> dict[str, object]:
    return {**_group(group), "tp_rank": group.tp_rank, "tp_size": group.tp_size}


def _gpu(gpu: GpuPlan) -> dict[str, object]:
    return {
        "stage_names": list(gpu.stage_names),
        "total_gpu_memory_fraction": gpu.total_gpu_memory_fraction,
        "missing_fraction_stage_names": list(gpu.missing_fraction_stage_names),
        "kv_cache_bytes": gpu.kv_cache_bytes,
        "total_reserve_bytes": gpu.total_reserve_bytes,
    }


def _mps(decision: MpsDecision) -> dict[str, object]:
    return {
        "mode": decision.mode,
        "decision": decision.decision,
        "reason": decision.reason,
        "cards": [
            {
                "card": card.card,
                "gpu_ids": list(card.gpu_ids),
                "clients": list(card.clients),
                "enabled": card.enabled,
                "reason": card.reason,
            }
            for card in decision.cards
        ],
        "refused": dict(decision.refused),
        "quota": decision.quota.model_dump(mode="json"),
    }


def _weight_share(decision: WeightShareDecision) -> dict[str, object]:
    return {
        "mode": decision.mode,
        "decision": decision.decision,
        "reason": decision.reason,
        "groups": [
            {
                "process": share.process,
                "gpu_id": share.gpu_id,
                "leader": share.leader,
                "followers": list(share.followers),
                "store": share.store,
            }
            for share in decision.groups
        ],
        "starts_last": list(decision.starts_last),
    }
