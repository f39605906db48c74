"""Gateways as the operator sees them, played from what pretended nodes run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_operator.controller.gateways import GatewayAddress, PodUnreachable
from omni_operator.names import APP_COMPONENT, LABEL_PIPELINE, LABEL_REVISION, tls_server_name
from omni_operator.plan.world import GatewaysSeen, PodTraffic

Pods = Callable[[], Iterator[Mapping[str, Any]]]


@dataclass(slots=True)
class PlayedTraffic:
    """Every stage pod that is ready registers at once, unless it is told to drain.

    Attributes:
        running: gives all pods that run.
        registers: whether a pod registers.
        in_flight: requests by pod name.
        draining: names of pods that were told to drain.
        silent: whether gateways do not answer.
        answers: what a pod answers on a path, null for nothing.
        told: every path that was posted, with the pod's name.
    """

    running: Pods
    registers: Callable[[Mapping[str, Any]], bool] = lambda _: True
    in_flight: dict[str, int] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    silent: bool = False
    answers: Callable[[Mapping[str, Any], str], str | None] = lambda *_: None
    told: list[tuple[str, str]] = field(default_factory=list)

    async def seen(self, gateways: GatewayAddress) -> GatewaysSeen | None:
        """Answer for the pipeline whose pods are asked about."""
        if self.silent:
            return None
        count = len(gateways.ips)
        pods = {
            pod["status"]["podIP"]: self._of(pod)
            for pod in self.running()
            if _server_name(pod) == gateways.server_name and self._is_known(pod)
        }
        return GatewaysSeen(pods, asked=count, answered=count)

    async def post(self, ip: str, ports: Sequence[int], path: str) -> None:
        """Take what a pod is told."""
        for pod in self.running():
            if pod["status"].get("podIP") != ip:
                continue
            name = pod["metadata"]["name"]
            self.told.append((path, name))
            (self.draining.add if path == "/drain" else self.draining.discard)(name)
            return
        raise PodUnreachable(f"no pod has the address {ip}")

    async def ask(self, ip: str, ports: Sequence[int], path: str) -> tuple[str, ...] | None:
        """Answer for every container of a pod."""
        for pod in self.running():
            if pod["status"].get("podIP") == ip:
                said = self.answers(pod, path)
                return None if said is None else (said,) * len(ports)
        return None

    def _is_known(self, pod: Mapping[str, Any]) -> bool:
        labels = pod["metadata"].get("labels") or {}
        is_stage = labels.get(APP_COMPONENT) == "stage"
        return is_stage and bool(pod["status"].get("podIP")) and self.registers(pod)

    def _of(self, pod: Mapping[str, Any]) -> PodTraffic:
        name = pod["metadata"]["name"]
        return PodTraffic(
            routable=name not in self.draining,
            in_flight=self.in_flight.get(name, 0),
            draining=name in self.draining,
            revision=pod["metadata"]["labels"][LABEL_REVISION],
        )


def _server_name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    pipeline = (metadata.get("labels") or {}).get(LABEL_PIPELINE, "")
    return tls_server_name(pipeline, metadata["namespace"])
