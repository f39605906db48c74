"""The chat example behind a whole gateway: gRPC and HTTP in a thread, its stages in a process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from examples.chat.topology import ChatExamplePipelineConfig
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.resolution.document import read_document
from omni_config.resolution.resolve import Sources, file_body, resolve
from omni_config.schema import PipelineConfig
from omni_gateway.clients import Clients
from omni_gateway.coordinator import CoordinatorOptions
from omni_gateway.server import Addresses, GatewayServer
from omni_wire.credentials import Plaintext

T = TypeVar("T")

EXAMPLE = Path(__file__).parents[2] / "examples/chat/pipeline.yaml"
MODEL = "parrot"
SAMPLE_RATE = 24_000
WORD_SAMPLES = 960
START_SECONDS = 60
GROUP = "chat"


@dataclass(frozen=True, slots=True)
class ChatGateway:
    """A running gateway.

    Attributes:
        target: of the gRPC API.
        url: of the HTTP API.
    """

    server: GatewayServer
    loop: asyncio.AbstractEventLoop
    target: str
    url: str

    @property
    def in_flight(self) -> int:
        """Unfinished requests."""
        return self.call(self._in_flight())

    def settled(self) -> bool:
        """Wait until nothing of any request is left, and return whether none counts any more."""
        return self.call(self._settled())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something inside the gateway's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(START_SECONDS)

    async def _in_flight(self) -> int:
        return self.server.coordinator.state.requests.admission.in_flight

    async def _settled(self) -> bool:
        async with asyncio.timeout(START_SECONDS):
            await self.server.coordinator.idle()
        return self.server.coordinator.state.requests.admission.in_flight == 0


@contextmanager
def chat_gateway(
    clients: Clients | None = None,
    options: CoordinatorOptions | None = None,
    settings: str = "",
    pipeline: type[PipelineConfig] = ChatExamplePipelineConfig,
    *,
    wait: bool = True,
) -> Iterator[ChatGateway]:
    """Run the example; everything has ended afterwards.

    Args:
        settings: YAML appended to the example's file.
        pipeline: the example, or one made of it.
        wait: whether to wait until it is ready.
    """
    with tempfile.TemporaryDirectory(prefix="omni") as folder:
        file, runtime = _planned(Path(folder), settings, pipeline)
        control = f"unix:{folder}/gateway.sock"
        running = _Running(runtime, control, clients, options)
        command = _group_command(file, runtime, control, pipeline.__module__)
        with running.thread() as gateway:
            processes = [subprocess.Popen(command)]
            try:
                if wait:
                    gateway.call(asyncio.wait_for(gateway.server.ready(), START_SECONDS))
                yield gateway
            finally:
                _stop(processes)


class _Running:
    def __init__(
        self,
        runtime: PipelineRuntime,
        control: str,
        clients: Clients | None,
        options: CoordinatorOptions | None,
    ) -> None:
        self._runtime = runtime
        self._addresses = Addresses(api=("127.0.0.1:0",), control=(control,), http=("127.0.0.1:0",))
        self._clients = clients
        self._options = options
        self._started: Any = None
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None

    @contextmanager
    def thread(self) -> Iterator[ChatGateway]:
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        thread.start()
        assert self._ready.wait(START_SECONDS)
        if isinstance(self._started, BaseException):
            raise self._started
        gateway: ChatGateway = self._started
        try:
            yield gateway
        finally:
            assert self._stop is not None
            gateway.loop.call_soon_threadsafe(self._stop.set)
            thread.join(START_SECONDS)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        try:
            server = GatewayServer(
                self._runtime.config,
                self._addresses,
                Plaintext(),
                self._options,
                clients=self._clients,
            )
            async with server.serving():
                loop = asyncio.get_running_loop()
                self._started = ChatGateway(server, loop, server.bound[0], server.pages[0])
                self._ready.set()
                await self._stop.wait()
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._started = error
            self._ready.set()


def _planned(
    folder: Path, settings: str, pipeline: type[PipelineConfig]
) -> tuple[Path, PipelineRuntime]:
    file = folder / "pipeline.yaml"
    example = EXAMPLE.read_text().replace(ChatExamplePipelineConfig.__name__, pipeline.__name__)
    file.write_text(f"{example}\nendpoints:\n  base_path: {folder}\n{settings}\n")
    body = file_body(read_document(file))
    config = resolve(pipeline, Sources(body=body)).config
    runtime = prepare_pipeline_runtime(config, run_id="t")
    Path(runtime.endpoints.run_directory).mkdir(parents=True)
    return file, runtime


def _group_command(
    file: Path, runtime: PipelineRuntime, control: str, topology: str
) -> Sequence[str]:
    return [
        sys.executable,
        *("-m", "omni_runtime.group", f"--config={file}", f"--pipelines={topology}"),
        *(f"--group={GROUP}", f"--run-id={runtime.endpoints.run_id}"),
        f"--listen={runtime.endpoints.addresses[GROUP]}",
        *(f"--gateway={control}", "--log-level=ERROR"),
    ]


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()
