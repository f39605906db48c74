"""Why a pod does not serve yet, in one word and one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omni_operator.plan.cluster_state import conditions_of
from omni_operator.plan.goal import UNSCHEDULABLE_SECONDS
from omni_operator.plan.observed import PodState
from omni_operator.render.manifest import Manifest
from omni_operator.status import reasons

_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_CRASH = ("CrashLoopBackOff", "RunContainerError", "CreateContainerError")


def why_not_serving(pod: Manifest, state: PodState, now: float) -> tuple[str, str]:
    """Return reason and sentence for a pod that does not serve."""
    name = pod["metadata"]["name"]
    if state.draining:
        return reasons.DRAINING, f"{name} finishes {state.in_flight} requests"
    if not state.scheduled and now - state.created < UNSCHEDULABLE_SECONDS:
        return reasons.PODS_MISSING, f"{name} waits for a node"
    if not state.scheduled:
        scheduled = conditions_of(pod).get("PodScheduled", {})
        return reasons.INSUFFICIENT_CAPACITY, f"{name}: {scheduled.get('message', 'has no node')}"
    for container in _containers(pod, "initContainerStatuses", "containerStatuses"):
        found = _stuck(container)
        if found:
            return found[0], f"{name}/{container['name']}: {found[1]}"
    download = next(_containers(pod, "initContainerStatuses"), None)
    if download and download["name"] == "download" and not download.get("ready"):
        return reasons.MODEL_DOWNLOAD, f"{name} downloads the checkpoint"
    if not state.containers_ready:
        return reasons.MODEL_LOAD, f"{name} is starting"
    return reasons.NOT_REGISTERED, f"{name} is not known to every gateway yet"


def _stuck(container: dict[str, Any]) -> tuple[str, str] | None:
    waiting = container.get("state", {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _PULL:
        return reasons.IMAGE_PULL, waiting.get("message", reason)
    if reason in _CRASH:
        last = container.get("lastState", {}).get("terminated") or {}
        said = (last.get("message") or waiting.get("message") or reason).strip()
        return reasons.CRASH_LOOP, said.splitlines()[-1] if said else reason
    return None


def _containers(pod: Manifest, *lists: str) -> Iterator[dict[str, Any]]:
    for one in lists:
        yield from pod.get("status", {}).get(one) or ()
