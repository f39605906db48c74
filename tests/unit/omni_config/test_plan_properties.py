"""Every plan keeps every invariant, or is refused with a path."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from omni_config.errors import ConfigError
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.schema import PipelineConfig, StageConfig
from tests.support.pipelines import chain, engine, stage

GPU_IDS = st.integers(0, 2)
FRACTIONS = st.sampled_from([None, 0.1, 0.3, 0.5, 0.9])
PROCESSES = st.sampled_from(["p", "q", "r"])


@st.composite
def plain_stages(draw: st.DrawFn, name: str) -> StageConfig:
    """Draw a stage on the CPU or on one GPU."""
    gpu = draw(st.none() | GPU_IDS)
    written: dict[str, Any] = {
        "process": draw(PROCESSES),
        "gpu": gpu,
        "gpu_memory_fraction": None if gpu is None else draw(FRACTIONS),
    }
    return engine(name, **written) if draw(st.booleans()) else stage(name, **written)


@st.composite
def parallel_stages(draw: st.DrawFn, name: str) -> StageConfig:
    """Draw a tensor-parallel stage in a process of its own."""
    gpu_ids = tuple(draw(st.lists(GPU_IDS, min_size=2, max_size=3, unique=True)))
    return engine(name, gpu=gpu_ids, tp_size=len(gpu_ids), gpu_memory_fraction=draw(FRACTIONS))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[StageConfig, ...], dict[str, Any]]:
    """Draw stages, and settings that may or may not fit them."""
    count = draw(st.integers(1, 5))
    stages = tuple(
        draw(plain_stages(f"s{index}") | parallel_stages(f"s{index}")) for index in range(count)
    )
    processes: dict[str, Any] = {}
    for process in sorted({it.process_name for it in stages}):
        copies = draw(st.integers(1, 3))
        size = max(it.tp_size for it in stages if it.process_name == process)
        devices = draw(st.lists(GPU_IDS, min_size=copies * size, max_size=copies * size))
        if draw(st.booleans()):
            on_gpu = any(it.gpu is not None for it in stages if it.process_name == process)
            processes[process] = {
                "num_replicas": copies,
                "replica_devices": devices if on_gpu else None,
            }
    return stages, {
        "processes": processes,
        "mps": draw(st.sampled_from(["off", "auto", "on"])),
        "placement": {"require_memory_fraction_for_colocation": draw(st.booleans())},
    }


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_a_plan_keeps_every_invariant_or_is_refused_with_a_path(
    layout: tuple[tuple[StageConfig, ...], dict[str, Any]],
) -> None:
    outcome = _planned(layout)
    if isinstance(outcome, ConfigError):
        assert outcome.problems
        assert all(problem.path and problem.message for problem in outcome.problems)
        return
    config, runtime = outcome.config, outcome
    _assert_each_instance_has_its_processes(runtime)
    _assert_groups_are_sound(runtime)
    _assert_gpus_are_sound(config, runtime)
    _assert_replicas_have_devices(config, runtime)


def _planned(
    layout: tuple[tuple[StageConfig, ...], dict[str, Any]],
) -> PipelineRuntime | ConfigError:
    stages, written = layout
    try:
        return prepare_pipeline_runtime(chain(*stages, **written), environ={})
    except ConfigError as error:
        return error


def _assert_each_instance_has_its_processes(runtime: PipelineRuntime) -> None:
    plain = Counter(name for it in runtime.process_plan.groups for name in it.stage_names)
    ranks = Counter(name for it in runtime.process_plan.tp_groups for name in it.stage_names)
    assert not plain.keys() & ranks.keys()
    for instance in runtime.replica_topology.instances:
        if instance.config.tp_size == 1:
            assert plain[instance.name] == 1
        else:
            assert ranks[instance.name] == instance.config.tp_size


def _assert_groups_are_sound(runtime: PipelineRuntime) -> None:
    groups = runtime.process_plan.all_groups
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        gpu_ids = {
            gpu_id
            for name in group.stage_names
            for gpu_id in runtime.instance_by_name[name].gpu_ids
        }
        if group.tensor_parallel:
            assert len(group.stage_names) == 1
            assert group.gpu_id in gpu_ids
        else:
            assert gpu_ids == (set() if group.gpu_id is None else {group.gpu_id})


def _assert_gpus_are_sound(config: PipelineConfig, runtime: PipelineRuntime) -> None:
    plan = runtime.placement_plan
    for gpu_id, gpu in plan.gpus.items():
        assert gpu.total_gpu_memory_fraction <= 1.0 + 1e-9
        instances = plan.by_gpu[gpu_id]
        shared = len({instance.process for instance in instances}) > 1
        if shared and config.placement.require_memory_fraction_for_colocation:
            assert not gpu.missing_fraction_stage_names


def _assert_replicas_have_devices(config: PipelineConfig, runtime: PipelineRuntime) -> None:
    for instance in runtime.replica_topology.instances:
        wanted = 0 if instance.config.gpu is None else instance.config.tp_size
        assert len(set(instance.gpu_ids)) == len(instance.gpu_ids) == wanted
    for declared in config.stages:
        names = runtime.replica_topology.instances_of(declared.name)
        assert len(names) == config.replicas(declared)
