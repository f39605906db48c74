"""What the groups of a container are told: ports, cards by identity, their part of MPS."""

from __future__ import annotations

from typing import Any

import pytest

from omni_config.errors import PlanError
from omni_config.planning.devices import Device, DeviceTable
from omni_config.planning.environment import Host
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from omni_runtime.launcher.local_processes import LocalProcess
from omni_runtime.pod.options import PodOptions, parse_options
from omni_runtime.pod.processes import (
    NotInPlan,
    chosen_groups,
    container_devices,
    container_mps,
    pod_processes,
)
from tests.support.pipelines import chain, engine, replicas, stage

CARD, OTHER = Device("GPU-first"), Device("GPU-second")
SHARED = chain(
    stage("front"),
    engine("thinker", gpu=0, gpu_memory_fraction=0.9),
    engine("talker", gpu=1, gpu_memory_fraction=0.4),
    engine("vocoder", gpu=1, gpu_memory_fraction=0.4),
    mps="on",
)


def told(*words: str) -> PodOptions:
    """Return options as the operator writes them, for these groups and further words."""
    common = ["--config", "/etc/omnipipe/pipeline.yaml", "--run-id", "run1"]
    common += ["--listen", "0.0.0.0:7000", "--advertise", "10.0.0.9:7000", "--health-port", "1"]
    common += ["--metrics-port", "9100", "--gateway", "dns:///gw:7443", "--insecure"]
    return parse_options([*common, *words])


def planned(
    config: PipelineConfig, options: PodOptions, *visible: Device, has_mps: bool = True
) -> tuple[PipelineRuntime, DeviceTable]:
    def plan(devices: DeviceTable | None) -> PipelineRuntime:
        return prepare_pipeline_runtime(
            config, devices=devices, environ={}, run_id="run1", signatures=lambda path: None
        )

    first = plan(None)
    seen = DeviceTable(dict(enumerate(visible)), len(visible) or None, has_mps_control=has_mps)
    groups = chosen_groups(first, options.groups)
    devices = container_devices(groups, seen, first.placement_plan.gpus)
    return plan(devices), devices


def processes(config: PipelineConfig, options: PodOptions, *visible: Device) -> dict[str, Any]:
    runtime, devices = planned(config, options, *visible)
    found: list[LocalProcess] = pod_processes(runtime, options, Host({}, 8), devices)
    return {process.name: process for process in found}


def test_the_nth_group_has_the_nth_port_and_what_is_meant_for_all() -> None:
    found = processes(SHARED, told("--group", "talker", "--group", "vocoder", "--mps"), CARD)
    words = list(found["vocoder"].command.argv)
    assert words[words.index("--listen") + 1] == "0.0.0.0:7001"
    assert words[words.index("--advertise") + 1] == "10.0.0.9:7001"
    assert words[words.index("--metrics-port") + 1] == "9101"
    assert words[-3:] == ["--gateway", "dns:///gw:7443", "--insecure"]


def test_a_card_has_its_own_number_in_the_container() -> None:
    found = processes(SHARED, told("--group", "talker"), CARD)
    environment = found["talker"].command.environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-first"
    assert environment["SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS"] == "true"
    assert environment["OMNI_CONSTRUCTION_LOCK"] == "omnipipe_gpu_GPU-first_startup.lock"


def test_a_daemon_inside_is_leased_for_the_cards_of_this_container_alone() -> None:
    options = told("--group", "talker", "--group", "vocoder", "--mps")
    runtime, _ = planned(SHARED, options, CARD)
    groups = chosen_groups(runtime, options.groups)
    assert [card.card for card in container_mps(runtime.mps, groups).cards] == ["GPU-first"]
    found = processes(SHARED, options, CARD)
    assert found["talker"].command.environment["OMNI_MPS_CLIENT_TOKEN"] == "run1/talker"


def test_a_daemon_of_another_container_is_found_by_the_pods_own_variables() -> None:
    found = processes(SHARED, told("--group", "talker"), CARD)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in found["talker"].command.environment


def test_a_container_without_a_gpu_needs_no_mps_program() -> None:
    runtime, devices = planned(SHARED, told("--group", "front"), has_mps=False)
    (front,) = pod_processes(runtime, told("--group", "front"), Host({}, 8), devices)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in front.command.environment
    with pytest.raises(PlanError, match="nvidia-cuda-mps-control is not on PATH"):
        planned(SHARED, told("--group", "talker", "--mps"), CARD, has_mps=False)


def test_ranks_meet_in_their_container_and_each_sees_its_card() -> None:
    config = chain(engine("thinker", tp_size=2, gpu=(2, 3)), stage("text"))
    options = told("--group", "thinker_tp0", "--group", "thinker_tp1")
    found = processes(config, options, CARD, OTHER)
    words = list(found["thinker_tp1"].command.argv)
    assert words[words.index("--listen") + 1].startswith("unix:/tmp/omnipipe/")
    cards = [each.command.environment["CUDA_VISIBLE_DEVICES"] for each in found.values()]
    assert cards == ["GPU-first", "GPU-second"]


@pytest.mark.parametrize(
    ("groups", "restarts"),
    [
        pytest.param(["talker"], False, id="one group: the container ends with it"),
        pytest.param(["talker", "vocoder"], True, id="several: the others go on"),
    ],
)
def test_who_restarts_a_group(groups: list[str], restarts: bool) -> None:
    words = [word for group in groups for word in ("--group", group)]
    found = processes(SHARED, told(*words), CARD)
    assert {each.role.restarts for each in found.values()} == {restarts}


def test_a_group_that_is_not_planned_and_a_missing_card_are_refused() -> None:
    with pytest.raises(NotInPlan, match="no process group speaker; there are front"):
        processes(SHARED, told("--group", "speaker"), CARD)
    with pytest.raises(NotInPlan, match=r"use GPUs \[0, 1\] of the plan, and it sees 1"):
        processes(SHARED, told("--group", "thinker", "--group", "talker"), CARD)


SHARING = chain(
    stage("front"),
    engine("talker", gpu=1, gpu_memory_fraction=0.4, engine={"max_total_tokens": 1000}),
    processes=replicas(talker=[1, 1]),
    weight_share="on",
)


def test_copies_that_share_weights_are_told_where_they_meet() -> None:
    options = told("--group", "talker@r0", "--group", "talker@r1")
    runtime, _ = planned(SHARING, options, CARD)
    found = processes(SHARING, options, CARD)
    store = f"{runtime.endpoints.run_directory}/weights/talker/gpu1"
    shares = [found[name].command.environment["OMNI_WEIGHT_SHARE"] for name in found]
    assert shares == [f"leader:{store}", f"follower:{store}"]
    assert found["talker@r0"].role.takes_down == ("talker@r1",)
    assert found["talker@r1"].role.starts_after == "talker@r0"


def test_a_follower_without_its_leader_is_refused() -> None:
    options = told("--group", "talker@r1")
    with pytest.raises(NotInPlan, match="share weights, so one container runs all of them"):
        planned(SHARING, options, CARD)
