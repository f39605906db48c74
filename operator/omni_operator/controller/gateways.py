"""Asks the gateways of a pipeline which pods they can route to, and tells pods to drain.

Gateways are asked on their control port, with a certificate of the pipeline's own authority. One
that does not answer in time makes the picture incomplete, and nothing is decided on an incomplete
picture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import grpc
from grpc import aio

from omni_config.errors import OmniError
from omni_operator.controller.certificates import TlsFiles
from omni_operator.controller.logs import EventLogger
from omni_operator.names import CONTROL_PORT
from omni_operator.plan.world import GatewaysSeen, PodTraffic
from omni_wire.v1 import gateway_pb2, gateway_pb2_grpc

logger = EventLogger(__name__)

ANSWER_SECONDS = 3.0
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0),)


class PodUnreachable(OmniError):
    """A pod could not be told to drain or to resume."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """The gateways of one pipeline.

    Attributes:
        ips: addresses of its gateway pods that run.
        server_name: name in the certificates of its pods.
        tls: the operator's certificate for this pipeline, null where mutual TLS is off.
    """

    ips: tuple[str, ...]
    server_name: str
    tls: TlsFiles | None


class Traffic(Protocol):
    """What the controller needs of gateways and pods."""

    async def seen(self, gateways: GatewayAddress) -> GatewaysSeen | None:
        """Return what the gateways say, None when none of them answers."""

    async def post(self, ip: str, ports: Sequence[int], path: str) -> None:
        """Tell every container of a pod something.

        Raises:
            PodUnreachable: one of them did not take it.
        """

    async def ask(self, ip: str, ports: Sequence[int], path: str) -> tuple[str, ...] | None:
        """Return what every container of a pod answers, None unless all of them do."""


class GrpcTraffic:
    """Traffic over the network; keeps no connection, so that none outlives its certificate."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def seen(self, gateways: GatewayAddress) -> GatewaysSeen | None:
        """Ask all gateways at once."""
        answers = await asyncio.gather(*(self._ask(ip, gateways) for ip in gateways.ips))
        told = [answer for answer in answers if answer is not None]
        if not told:
            return None
        return GatewaysSeen(combine(told), asked=len(gateways.ips), answered=len(told))

    async def post(self, ip: str, ports: Sequence[int], path: str) -> None:
        """Tell every container of a pod something over plain HTTP."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        for port in ports:
            url = f"http://{_host(ip)}:{port}{path}"
            try:
                async with self._session.post(url, timeout=timeout) as answer:
                    answer.raise_for_status()
            except (aiohttp.ClientError, TimeoutError) as error:
                raise PodUnreachable(f"POST {url}: {error or 'no answer'}") from error

    async def ask(self, ip: str, ports: Sequence[int], path: str) -> tuple[str, ...] | None:
        """Ask the containers one after the other over plain HTTP."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        said: list[str] = []
        for port in ports:
            url = f"http://{_host(ip)}:{port}{path}"
            try:
                async with self._session.get(url, timeout=timeout) as answer:
                    answer.raise_for_status()
                    said.append(await answer.text())
            except (aiohttp.ClientError, TimeoutError) as error:
                logger.debug("pod does not answer", url=url, error=error or "no answer")
                return None
        return tuple(said)

    async def _ask(
        self, ip: str, gateways: GatewayAddress
    ) -> gateway_pb2.GetPipelineResponse | None:
        async with _channel(f"{_host(ip)}:{CONTROL_PORT}", gateways) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            try:
                return await stub.GetPipeline(
                    gateway_pb2.GetPipelineRequest(), timeout=ANSWER_SECONDS
                )
            except aio.AioRpcError as error:
                logger.debug("gateway does not answer", ip=ip, error=error.details())
                return None


def combine(answers: Sequence[gateway_pb2.GetPipelineResponse]) -> Mapping[str, PodTraffic]:
    """Return what all answers together say of each pod, by the pod's IP address."""
    pods: dict[str, PodTraffic] = {}
    known = [_by_ip(answer) for answer in answers]
    for ip in {ip for one in known for ip in one}:
        found = [one[ip] for one in known if ip in one]
        instances = [instance for one in found for instance in one]
        pods[ip] = PodTraffic(
            routable=len(found) == len(known) and all(_routable(one) for one in instances),
            in_flight=sum(one.in_flight for one in instances),
            draining=any(one.draining for one in instances),
            revision=max((one.revision for one in instances), default=""),
        )
    return pods


def _routable(instance: gateway_pb2.Instance) -> bool:
    return instance.ready and not instance.draining


def _by_ip(answer: gateway_pb2.GetPipelineResponse) -> dict[str, list[gateway_pb2.Instance]]:
    found: dict[str, list[gateway_pb2.Instance]] = {}
    for stage in answer.stages:
        for instance in stage.instances:
            ip = instance.address.rpartition(":")[0].strip("[]").rpartition("/")[2]
            found.setdefault(ip, []).append(instance)
    return found


def _channel(target: str, gateways: GatewayAddress) -> aio.Channel:
    if gateways.tls is None:
        return aio.insecure_channel(target, CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        gateways.tls.authority, gateways.tls.private_key, gateways.tls.certificate
    )
    name = ("grpc.ssl_target_name_override", gateways.server_name)
    return aio.secure_channel(target, credentials, (*CHANNEL_OPTIONS, name))


def _host(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
