"""A stage container with stand-in groups: what Kubernetes asks it, what it does when they die."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from examples.echo.topology import EchoPipelineConfig
from omni_config.resolution.inspection import config_yaml
from omni_config.settings import EndpointConfig
from omni_runtime.mps.control import PIPE_VARIABLE, MpsControl
from omni_runtime.pod.container import run_container
from omni_runtime.pod.options import parse_options
from tests.support.mps import fake_host
from tests.support.own_signals import ended_by_signal
from tests.support.patience import PATIENT_SECONDS
from tests.support.ports import free_port

STAND_IN = (sys.executable, "-m", "tests.support.stand_in_process")


@dataclass
class Container:
    """A running container.

    Attributes:
        folder: where stand-ins are told what to do.
    """

    folder: Path
    port: int
    task: asyncio.Task[int]

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.get(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENT_SECONDS)

    async def post(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.post(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENT_SECONDS)

    async def becomes(self, path: str, status: int) -> None:
        """Ask until the answer has a status."""
        async with asyncio.timeout(PATIENT_SECONDS):
            while True:
                try:
                    if (await self.get(path)).status_code == status:
                        return
                except httpx.ConnectError:
                    await asyncio.sleep(0.01)


@asynccontextmanager
async def container(folder: Path, **groups: str) -> AsyncIterator[Container]:
    """Run groups of the echo pipeline, each a stand-in that behaves as the words say."""
    for name, behaviour in groups.items():
        (folder / name).write_text(behaviour)
    config = EchoPipelineConfig(
        model_path="none", endpoints=EndpointConfig(base_path=str(folder / "run"))
    )
    (folder / "pipeline.yaml").write_text(config_yaml(config))
    port = free_port()
    words = ["--config", str(folder / "pipeline.yaml"), "--pipelines", "examples.echo.topology"]
    words += ["--listen", "127.0.0.1:1", "--health-port", str(port), "--metrics-port", "2"]
    words += [word for name in groups for word in ("--group", name)]
    options = replace(parse_options(words), program=(*STAND_IN, str(folder)))
    task = asyncio.create_task(run_container(options))
    try:
        yield Container(folder, port, task)
    finally:
        await ended_by_signal(task)


def pid_of(output: str, name: str) -> int:
    """Return the process id that a stand-in printed last."""
    lines = [line for line in output.splitlines() if line.startswith(f"{name} begins as")]
    return int(lines[-1].split()[-1])


async def test_probes_follow_the_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with container(tmp_path, front="", back="") as running:
        await running.becomes("/startupz", 200)
        await running.becomes("/readyz", 200)
        (tmp_path / "back").write_text("silent")
        os.kill(pid_of(capsys.readouterr().out, "back"), signal.SIGKILL)
        await running.becomes("/readyz", 503)
        assert "back: " in (await running.get("/readyz")).text
        assert (await running.get("/livez")).status_code == 200
        assert (await running.get("/startupz")).status_code == 200, "it has started once"


async def test_a_group_that_is_alone_takes_its_container_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with container(tmp_path, front="") as running:
        await running.becomes("/readyz", 200)
        os.kill(pid_of(capsys.readouterr().out, "front"), signal.SIGKILL)
        assert await running.task == 1


async def test_draining_answers_when_the_groups_have_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with container(tmp_path, front="", back="") as running:
        await running.becomes("/readyz", 200)
        answers = await asyncio.gather(running.get("/drain"), running.get("/drain"))
        assert [answer.text for answer in answers] == ["drained\n", "drained\n"]
        assert await running.task == 0
    output = capsys.readouterr().out
    assert output.count("was told to stop") == 2
    assert os.listdir(tmp_path / "run") == []


async def test_a_drain_that_may_be_called_off_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with container(tmp_path, front="", back="") as running:
        await running.becomes("/readyz", 200)
        for path in ("/drain", "/resume"):
            assert (await running.post(path)).status_code == 200
        assert (await running.get("/readyz")).status_code == 200
        assert (await running.get("/drain")).text == "drained\n"
        assert await running.task == 0
    output = capsys.readouterr().out
    for name in ("front", "back"):
        assert f"{name} was told to pause" in output
        assert f"{name} was told to resume" in output


async def test_a_failed_start_ends_the_container(tmp_path: Path) -> None:
    async with container(tmp_path, front="fails", back="") as running:
        assert await running.task == 1


async def test_it_tells_how_many_processes_are_attached_to_the_daemon_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is another container of the pod, whose pipe directory both mount."""
    monkeypatch.setenv("FAKE_MPS_CALLS", str(tmp_path / "calls"))
    with tempfile.TemporaryDirectory(prefix="mps-") as short, fake_host(Path(short)) as card:
        monkeypatch.setenv("PATH", f"{Path(card.program).parent}:{os.environ['PATH']}")
        monkeypatch.setenv(PIPE_VARIABLE, str(card.pipe))
        daemon = MpsControl(card.pipe, card.path / "log")
        card.pipe.mkdir(parents=True)
        await daemon.start(card.name)
        try:
            async with container(tmp_path, front="attaches", back="") as running:
                await running.becomes("/readyz", 200)
                answer = await running.get("/mps")
                assert (answer.status_code, answer.text) == (200, "1\n")
        finally:
            await daemon.quit()


async def test_a_container_that_shares_no_gpu_has_nothing_attached(tmp_path: Path) -> None:
    async with container(tmp_path, front="") as running:
        await running.becomes("/readyz", 200)
        assert (await running.get("/mps")).text == "0\n"


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        pytest.param(b"GET /nothing HTTP/1.1\r\n\r\n", b"HTTP/1.1 404", id="unknown path"),
        pytest.param(b"POST /readyz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405", id="another method"),
        pytest.param(b"\0\1\r\n\r\n", b"", id="no HTTP"),
        pytest.param(b"GET /" + b"x" * 40000, b"", id="endless"),
    ],
)
async def test_strange_requests_do_no_harm(
    tmp_path: Path, request_bytes: bytes, answer: bytes
) -> None:
    async with container(tmp_path, front="") as running:
        await running.becomes("/readyz", 200)
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(request_bytes)
        # A server that stops reading may reset the connection, which loses its answer.
        with suppress(ConnectionResetError):
            assert (await reader.read()).startswith(answer)
        writer.close()
        assert (await running.get("/readyz")).status_code == 200
