"""Copies of process groups, and which copy serves a request."""

from __future__ import annotations

import pytest

from omni_config.errors import PlanError
from omni_config.planning.instances import NoReplicaError, ReplicaBinder, expand_replicas
from omni_config.planning.plan import prepare_pipeline_runtime
from tests.support.pipelines import chain, engine, replicas, stage


def test_copies_of_a_stage_are_consecutive_and_keep_the_order_of_the_stages() -> None:
    config = chain(
        stage("front", process="all"),
        engine("llm", process="all", gpu=0),
        processes=replicas(all=[2, 3]),
    )
    topology = expand_replicas(config)
    assert [(it.name, it.process, it.gpu_ids) for it in topology.instances] == [
        ("front@r0", "all@r0", ()),
        ("front@r1", "all@r1", ()),
        ("llm@r0", "all@r0", (2,)),
        ("llm@r1", "all@r1", (3,)),
    ]
    assert topology.instances_of("llm") == ("llm@r0", "llm@r1")
    assert topology.process_instances_of("all") == ("all@r0", "all@r1")


def test_each_copy_of_a_tensor_parallel_stage_takes_a_block_of_devices() -> None:
    config = chain(
        engine("llm", gpu=(0, 1), tp_size=2, process="brain"),
        processes={"brain": {"num_replicas": 2, "replica_devices": [0, 1, 4, 5]}},
    )
    assert [it.gpu_ids for it in expand_replicas(config).instances] == [(0, 1), (4, 5)]


def test_one_device_moves_a_process_without_renaming_it() -> None:
    config = chain(stage("vocoder", gpu=0), processes={"vocoder": {"replica_devices": [5]}})
    (instance,) = expand_replicas(config).instances
    assert (instance.name, instance.gpu_ids, instance.moved) == ("vocoder", (5,), True)
    assert instance.device_path == "processes.vocoder.replica_devices"


@pytest.mark.parametrize(
    ("devices", "warns"),
    [
        pytest.param([0, 1], True, id="a copy leaves the stage's own gpu"),
        pytest.param([0, 0], False, id="every copy stays on it"),
        pytest.param([3, 3], True, id="all copies leave it"),
    ],
)
def test_an_override_is_told_only_when_it_changes_a_device(devices: list[int], warns: bool) -> None:
    config = chain(
        stage("vocoder", gpu=0, gpu_memory_fraction=0.2), processes=replicas(vocoder=devices)
    )
    warnings = prepare_pipeline_runtime(config).warnings
    wanted = (
        "Stage 'vocoder': processes.vocoder.replica_devices overrides gpu=0; replica GPU "
        f"assignments: {devices}"
    )
    assert list(warnings) == ([wanted] if warns else [])


def test_a_stage_with_devices_of_its_own_is_neither_copied_nor_moved() -> None:
    config = chain(
        stage("render", gpu=0, allow_child_processes=True, runtime_gpu_ids=(0, 1)),
        processes={"render": {"replica_devices": [2]}},
    )
    with pytest.raises(PlanError, match=r"runtime_gpu_ids=\[0, 1\] name its devices") as refusal:
        prepare_pipeline_runtime(config)
    assert refusal.value.problems[0].path == "processes.render"


def _two_processes() -> ReplicaBinder:
    return ReplicaBinder(
        expand_replicas(
            chain(stage("a"), stage("b"), stage("c"), processes=replicas(a=2, b=3)),
        )
    )


def test_a_stage_that_runs_once_is_in_no_binding() -> None:
    binding = _two_processes().bind()
    assert binding is not None
    assert binding.instance_of("a") == "a@r0"
    assert binding.instance_of("c") == "c"


def test_a_copy_out_of_service_is_passed_over_and_the_others_still_take_turns() -> None:
    binder = _two_processes()
    bound = [binder.bind(out_of_service={"b@r1"}) for _ in range(4)]
    assert [it.replica_by_stage["b"] for it in bound if it] == [0, 2, 0, 2]


def test_the_least_loaded_copy_is_chosen() -> None:
    binder = _two_processes()
    bound = binder.bind(load={"b@r0": 4, "b@r1": 3, "b@r2": 1})
    assert bound is not None
    assert bound.replica_by_stage == {"a": 0, "b": 2}


def test_no_copy_in_service_is_told_by_name() -> None:
    with pytest.raises(NoReplicaError, match="Process 'a' has no copy in service: a@r0, a@r1"):
        _two_processes().bind(out_of_service={"a@r0", "a@r1"})
