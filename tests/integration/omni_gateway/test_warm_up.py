"""A gateway is ready once the author's warm-ups crossed real stages, and says which did not."""

from __future__ import annotations

import asyncio

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2

from omni_client import OmniClient
from omni_gateway.coordinator import Readiness
from omni_gateway.health import GATEWAY_SERVICE
from tests.support.chat_gateway import ChatGateway, chat_gateway
from tests.support.patience import PATIENT_SECONDS
from tests.support.warm_parrots import ColdParrotPipelineConfig, WarmParrotPipelineConfig

pytestmark = pytest.mark.slow

FAILURE = "stage 'writer': STAGE_FAILED: the parrot fails as it was asked to"


def test_a_pipeline_is_ready_once_it_is_warmed_up() -> None:
    with chat_gateway(pipeline=WarmParrotPipelineConfig) as gateway:
        answer = httpx.get(f"{gateway.url}/readyz", timeout=PATIENT_SECONDS)
        assert (answer.status_code, answer.json()) == (
            200,
            {"ready": True, "stages": {}, "warm_ups": {}},
        )
        assert _warm_ups(gateway) == {'name="words",phase="completed",reason=""': 1.0} | {
            'name="speech",phase="completed",reason=""': 1.0
        }
        assert httpx.get(f"{gateway.url}/v1/requests", timeout=PATIENT_SECONDS).json() == {
            "requests": []
        }


def test_a_pipeline_whose_warm_up_fails_says_so_and_serves_who_asks_all_the_same() -> None:
    with (
        chat_gateway(pipeline=ColdParrotPipelineConfig, wait=False) as gateway,
        OmniClient(gateway.target) as client,
    ):
        gateway.call(_told(gateway, FAILURE))
        answer = httpx.get(f"{gateway.url}/readyz", timeout=PATIENT_SECONDS)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json() == {"ready": False, "stages": {}, "warm_ups": {"speech": FAILURE}}
        assert _health(gateway) == health_pb2.HealthCheckResponse.NOT_SERVING
        pipeline = client.pipeline()
        assert not pipeline.ready
        (instance,) = pipeline.stages[0].instances
        assert instance.reason == f"warm-up 'speech': {FAILURE}"

        assert client.chat("hello", modalities=["text"]).text == "You said: hello"


def _warm_ups(gateway: ChatGateway) -> dict[str, float]:
    name = "omni_gateway_warm_ups_total{"
    lines = httpx.get(f"{gateway.url}/metrics", timeout=PATIENT_SECONDS).text.splitlines()
    counted = [line.removeprefix(name).split("} ") for line in lines if line.startswith(name)]
    return {labels: float(count) for labels, count in counted}


async def _told(gateway: ChatGateway, problem: str) -> None:
    """Wait until the gateway says what is wrong with a warm-up."""
    told = asyncio.Event()

    def look(readiness: Readiness) -> None:
        if problem in readiness.warm_ups.values():
            told.set()

    gateway.server.coordinator.watch_readiness(look)
    await told.wait()


def _health(gateway: ChatGateway) -> int:
    with grpc.insecure_channel(gateway.target) as channel:
        check: grpc.UnaryUnaryMultiCallable[
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ] = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return int(check(health_pb2.HealthCheckRequest(service=GATEWAY_SERVICE)).status)
