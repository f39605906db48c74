"""From the plan of a pipeline to the processes of one container.

A container numbers its GPUs from 0 whatever their numbers in the plan, so each process is given its
card by identity and sees nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from omni_config.errors import OmniError
from omni_config.planning.devices import Device, DeviceTable
from omni_config.planning.environment import Host
from omni_config.planning.launch import group_launch
from omni_config.planning.mps import MpsDecision
from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.processes import GroupKind, ProcessGroup
from omni_config.planning.visibility import VISIBLE_DEVICES
from omni_runtime.launcher.child_process import Command
from omni_runtime.launcher.local_processes import (
    CONSTRUCTION_LOCK_VARIABLE,
    LocalProcess,
    role_of,
)
from omni_runtime.pod.options import PodOptions, shifted

ONE_CARD_VARIABLE = "SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS"
_OTHER_POD = "elsewhere-{}"


class NotInPlan(OmniError):
    """The container is told to run a group, or to use more GPUs, than there are."""


def chosen_groups(runtime: PipelineRuntime, names: Iterable[str]) -> list[ProcessGroup]:
    """Return the groups of a container.

    Raises:
        NotInPlan: the plan has no such group, or it takes its weights from one that is elsewhere.
    """
    by_name = {group.name: group for group in runtime.process_plan.all_groups}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise NotInPlan(f"no process group {', '.join(missing)}; there are {', '.join(by_name)}")
    for share in runtime.weight_share.groups:
        sharing = {share.leader, *share.followers}
        if sharing & set(names) and not sharing <= set(names):
            raise NotInPlan(
                f"{', '.join(sorted(sharing))} share weights, so one container runs all of them; "
                f"this one is told to run {', '.join(names)}"
            )
    return [by_name[name] for name in names]


def container_devices(
    groups: Sequence[ProcessGroup], visible: DeviceTable, all_ids: Iterable[int]
) -> DeviceTable:
    """Return the devices under their numbers in the plan: those of the container in order, and a
    stand-in for each card of other pods. A container without a GPU knows nothing of any.

    Raises:
        NotInPlan: the container has fewer GPUs than its groups use.
    """
    own = sorted({gpu for group in groups for gpu in _cards(group)})
    if not own:
        return DeviceTable()
    if visible.visible_count is None:
        return DeviceTable(has_mps_control=visible.has_mps_control)
    if len(own) > visible.visible_count:
        raise NotInPlan(
            f"groups of this container use GPUs {own} of the plan, and it sees "
            f"{visible.visible_count}"
        )
    devices = {gpu: Device(_OTHER_POD.format(gpu)) for gpu in all_ids}
    devices |= {gpu: visible.devices[number] for number, gpu in enumerate(own)}
    return DeviceTable(devices, has_mps_control=visible.has_mps_control)


def container_mps(decision: MpsDecision, groups: Sequence[ProcessGroup]) -> MpsDecision:
    """Return the part of an MPS decision that is about the groups of a container."""
    names = {group.name for group in groups}
    cards = [card for card in decision.cards if names.issuperset(card.clients)]
    return replace(decision, cards=tuple(cards))


def pod_processes(
    runtime: PipelineRuntime, options: PodOptions, host: Host, devices: DeviceTable
) -> list[LocalProcess]:
    """Return the processes of a container.

    Raises:
        NotInPlan: the plan has no such group.
    """
    groups = chosen_groups(runtime, options.groups)
    alone = len(groups) == 1 or groups[0].tensor_parallel
    return [
        LocalProcess(
            # Kubernetes restarts a container that runs one thing, and counts how often.
            replace(role_of(runtime, group), restarts=not alone, drains=True, stop_rank=0),
            Command(
                _arguments(runtime, options, group, number),
                _environment(runtime, options, group, host, devices),
            ),
        )
        for number, group in enumerate(groups)
    ]


def _arguments(
    runtime: PipelineRuntime, options: PodOptions, group: ProcessGroup, number: int
) -> list[str]:
    words = [*options.program, "--config", str(options.config), "--run-id", options.run_id]
    words += ["--group", group.name]
    if group.kind is GroupKind.TP_FOLLOWER:
        # Its leader, in the same container, dials the planned socket.
        words += ["--listen", runtime.endpoints.addresses[group.name]]
    else:
        words += ["--listen", shifted(options.listen, number)]
        words += ["--advertise", shifted(options.advertise, number)]
    words += ["--metrics-port", str(options.metrics_port + number)]
    words += ["--drain-seconds", str(options.drain_seconds)]
    for module in options.pipelines:
        words += ["--pipelines", module]
    return [*words, *options.passed_on]


def _environment(
    runtime: PipelineRuntime,
    options: PodOptions,
    group: ProcessGroup,
    host: Host,
    devices: DeviceTable,
) -> Mapping[str, str]:
    launch = group_launch(runtime, group, host, devices)
    variables = dict(launch.environment)
    if not options.mps:
        # The daemon, if there is one, is another container's, which the pod tells where it is.
        variables = {
            key: value
            for key, value in variables.items()
            if key not in runtime.mps.environment.get(group.name, {})
        }
    if launch.startup_lock is not None:
        variables[CONSTRUCTION_LOCK_VARIABLE] = launch.startup_lock
    cards = [uuid for gpu in _cards(group) if (uuid := devices.uuid(gpu)) is not None]
    if cards:
        variables[VISIBLE_DEVICES] = ",".join(cards)
    if len(cards) == 1:
        variables[ONE_CARD_VARIABLE] = "true"
    return variables


def _cards(group: ProcessGroup) -> tuple[int, ...]:
    return group.runtime_gpu_ids or (() if group.gpu_id is None else (group.gpu_id,))


def host_of_container(usable_cpus: int) -> Host:
    """Return the host facts of this container, without the device numbers of its environment."""
    environ = {key: value for key, value in os.environ.items() if key != VISIBLE_DEVICES}
    return Host(environ, usable_cpus)
