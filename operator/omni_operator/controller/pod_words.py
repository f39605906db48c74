"""Asks pods what nobody else knows of them: how far a download is, and who is attached to MPS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence

from omni_operator.controller.gateways import Traffic
from omni_operator.names import HEALTH_PORT
from omni_operator.plan.cluster_state import downloads, mps_clients
from omni_operator.plan.world import PodTold
from omni_operator.plan.writes import health_ports
from omni_operator.render.manifest import Manifest

ATTACHMENT_PATH = "/mps"
PROGRESS_PATH = "/progress"
DOWNLOAD_SECONDS = 10.0
"""Nothing reports a download; it is asked for this often."""


async def ask_pods(traffic: Traffic, pods: Iterable[Manifest]) -> Mapping[str, PodTold]:
    """Return what pods that have something to tell say of themselves, by name."""
    asked = [pod for pod in pods if is_downloading(pod) or _shares(pod)]
    answers = await asyncio.gather(*(_ask(traffic, pod) for pod in asked))
    return {
        pod["metadata"]["name"]: told
        for pod, told in zip(asked, answers, strict=True)
        if told is not None
    }


def is_downloading(pod: Manifest) -> bool:
    """Whether a pod fetches the checkpoint now, or waits for one that does."""
    has_address = bool(pod["status"].get("podIP"))
    return has_address and any("running" in one.get("state", {}) for one in downloads(pod))


def _shares(pod: Manifest) -> bool:
    """Whether the containers of a pod are ready and share a GPU by MPS."""
    conditions = pod["status"].get("conditions") or ()
    ready = any(one["type"] == "ContainersReady" and one["status"] == "True" for one in conditions)
    return ready and mps_clients(pod) > 0


async def _ask(traffic: Traffic, pod: Manifest) -> PodTold | None:
    ip = pod["status"].get("podIP", "")
    if is_downloading(pod):
        said = await traffic.ask(ip, (HEALTH_PORT,), PROGRESS_PATH)
        return None if said is None else _progress(said[0])
    said = await traffic.ask(ip, health_ports(pod), ATTACHMENT_PATH)
    return None if said is None else _attachment(said)


def _attachment(said: Sequence[str]) -> PodTold | None:
    try:
        return PodTold(mps_attached=sum(map(int, said)))
    except ValueError:
        return None


def _progress(said: str) -> PodTold | None:
    try:
        answer = json.loads(said)
        return PodTold(downloaded=(int(answer["bytes"]), int(answer["of"])))
    except (ValueError, KeyError, TypeError):
        return None
