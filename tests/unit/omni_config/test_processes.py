"""Operating-system processes: who shares one, and what must be alone."""

from __future__ import annotations

import pytest

from omni_config.errors import PlanError
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.planning.processes import GroupKind
from tests.support.pipelines import chain, engine, stage


def test_each_rank_is_a_process_that_knows_its_place() -> None:
    config = chain(
        engine("llm", gpu=(0, 1), tp_size=2, gpu_memory_fraction=0.5),
        stage("decode"),
        processes={"llm": {"num_replicas": 2, "replica_devices": [0, 1, 2, 3]}},
    )
    plan = prepare_pipeline_runtime(config).process_plan
    assert [
        (it.name, it.gpu_id, it.stage_names, it.kind, it.tp_rank, it.tp_size, it.process)
        for it in plan.tp_groups
    ] == [
        ("llm@r0_tp0", 0, ("llm@r0",), GroupKind.TP_LEADER, 0, 2, "llm"),
        ("llm@r0_tp1", 1, ("llm@r0",), GroupKind.TP_FOLLOWER, 1, 2, "llm"),
        ("llm@r1_tp0", 2, ("llm@r1",), GroupKind.TP_LEADER, 0, 2, "llm"),
        ("llm@r1_tp1", 3, ("llm@r1",), GroupKind.TP_FOLLOWER, 1, 2, "llm"),
    ]
    assert [(it.replica_index, it.replica_count) for it in plan.tp_groups] == [
        (0, 2),
        (0, 2),
        (1, 2),
        (1, 2),
    ]
    assert plan.tp_processes == {
        "llm@r0": ("llm@r0_tp0", "llm@r0_tp1"),
        "llm@r1": ("llm@r1_tp0", "llm@r1_tp1"),
    }
    assert [it.name for it in plan.groups] == ["decode"]


def test_native_children_are_told_who_is_in_their_way() -> None:
    config = chain(
        stage("front", process="all"), stage("render", process="all", allow_child_processes=True)
    )
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config)
    (problem,) = refusal.value.problems
    assert problem.path == "stages.render.process"
    assert "stage 'render'" in problem.message
    assert "process 'all' also holds front" in problem.message


def test_a_process_on_two_gpus_is_told_once_whatever_its_copies() -> None:
    config = chain(
        stage("a", process="all", gpu=0),
        stage("b", process="all", gpu=1),
        stage("c", process="all"),
    )
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config)
    (problem,) = refusal.value.problems
    assert problem.path == "stages.b.gpu"
    assert "'all' spans multiple GPUs [0, 1] through stages: a, b, c" in problem.message


def test_replica_devices_give_every_member_of_a_process_one_gpu() -> None:
    config = chain(
        stage("a", process="all", gpu=0),
        stage("b", process="all", gpu=1),
        processes={"all": {"replica_devices": [2]}},
    )
    (group,) = prepare_pipeline_runtime(config).process_plan.groups
    assert group.gpu_id == 2
