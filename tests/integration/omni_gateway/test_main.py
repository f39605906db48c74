"""The gateway as a process: light, ready with one line, and gone cleanly when told."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2

from omni_gateway.health import CONTROL_SERVICE, GATEWAY_SERVICE, NOT_SERVING, SERVING
from omni_gateway.main import main
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.support.gateway_process import TWO_LEVEL_STREAM, gateway_process
from tests.support.patience import PROGRAM_SECONDS

IDLE_BYTES = 120_000_000
HEAVY = {"sglang", "torch", "transformers"}


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Give the root logger back as it was: `main` sets it up for a whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.slow
async def test_a_gateway_is_light_answers_and_stops_cleanly() -> None:
    async with gateway_process() as gateway:
        async with grpc.aio.insecure_channel(gateway.address) as channel:
            answer = await pb_grpc.GatewayServiceStub(channel).GetPipeline(pb.GetPipelineRequest())
            assert [stage.name for stage in answer.stages] == ["writer", "text", "speaker", "sound"]
            assert not answer.ready
            check: grpc.aio.UnaryUnaryMultiCallable[
                health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
            ] = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            for service, status in (
                ("", NOT_SERVING),
                (GATEWAY_SERVICE, NOT_SERVING),
                (CONTROL_SERVICE, SERVING),
                ("stage/sound", NOT_SERVING),
            ):
                request = health_pb2.HealthCheckRequest(service=service)
                assert (await check(request)).status == status
        assert gateway.rss_bytes < IDLE_BYTES

        gateway.signal()
        assert await gateway.stopped() == 0


def test_a_gateway_imports_nothing_heavy() -> None:
    code = "import sys, omni_gateway.main; print(*{name.split('.')[0] for name in sys.modules})"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_SECONDS,
    )

    assert not HEAVY & set(shown.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen=0.0.0.0:0"], "--insecure"),
        (["--listen=127.0.0.1:0", "--tls-key=key.pem"], "belong together"),
        (["--listen=127.0.0.1:0", "--config=nowhere.yaml"], "nowhere.yaml"),
        (
            [
                "--listen=127.0.0.1:0",
                "--tls-key=k",
                "--tls-certificate=c",
                "--tls-ca=a",
                "--no-auth",
            ],
            "No such file",
        ),
        (["--listen=unix:/nowhere/at/all.sock", "--no-auth"], "cannot listen"),
        (["--listen=127.0.0.1:0"], "--no-auth"),
        (["--listen=127.0.0.1:0", "--no-auth", "--http=0.0.0.0:0"], "--client-tls-certificate"),
        (["--listen=127.0.0.1:0", "--api-keys=nowhere"], "nowhere"),
    ],
)
@pytest.mark.usefixtures("own_logging")
def test_a_gateway_that_cannot_start_says_why(
    arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pipelines = "--pipelines=examples.two_level_stream.topology"

    assert main([f"--config={TWO_LEVEL_STREAM}", pipelines, *arguments]) == 2
    assert complaint in capfd.readouterr().err
