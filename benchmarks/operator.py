"""What the operator costs: one object beside kubectl, a burst beside a bare client, and memory.

A real API server and the operator's own process; neither controllers nor nodes, so that nothing but
the writes is measured. Objects are small speech pipelines with two groups.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.idle import rss_bytes
from benchmarks.report import Bar, Ratios, main
from omni_operator.controller.client import Client, load_configuration, open_client
from omni_operator.controller.resources import OWNED, PIPELINES, SECRETS
from omni_operator.names import API_VERSION, KIND, LABEL_PIPELINE
from omni_operator.render.manifest import Manifest
from tests.support.api_proxy import ssl_context
from tests.support.cluster_programs import program_directory
from tests.support.control_plane import control_plane
from tests.support.operator_site import NAMESPACES, install_definitions

CREATIONS = 9
BURST = 500
BURST_ROUNDS = 3
MANY = 1000
WORKERS = 8
"""Turns that the operator takes at a time by default; the bare client has as many requests open."""
WORKED, BARE = "worked", "bare"
"""The namespace that the operator looks after, and one that it does not."""
STILL_SECONDS = 6.0
DEADLINE_SECONDS = 400.0
READ_BYTES = 1 << 20
MEGABYTE = 1 << 20
MADE = tuple(one for one in (*OWNED, SECRETS) if not one.needs)

Request = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Arrivals:
    """Counts the objects that come into one namespace, pipelines apart."""

    count: int = 0
    last: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, count: int) -> float:
        """Return when so many objects had come."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()
        return self.last

    async def until_still(self) -> None:
        """Return once nothing has come for a while."""
        before = -1
        while self.count != before:
            before = self.count
            await asyncio.sleep(STILL_SECONDS)

    async def follow(self, session: aiohttp.ClientSession, path: str) -> None:
        """Count the objects of one collection."""
        async with session.get(f"{path}?watch=1&labelSelector={LABEL_PIPELINE}") as answer:
            async for line in answer.content:
                if line.startswith(b'{"type":"ADDED"'):
                    self.count, self.last = self.count + 1, perf_counter()
                    self._changed.set()


@dataclass(slots=True)
class Site:
    """An API server, an operator process, and what comes into their two namespaces.

    Attributes:
        children: objects of a pipeline as they were written.
    """

    kubeconfig: Path
    client: Client
    operator: subprocess.Popen[bytes]
    worked: Arrivals
    bare: Arrivals
    children: tuple[Manifest, ...] = ()

    async def learn(self) -> None:
        """Let the operator make one pipeline and remember what belongs to it."""
        await self.create(WORKED, ["first"])
        await self.worked.until(1)  # the operator takes its time to start
        await self.worked.until_still()
        found: list[Manifest] = []
        for resource in MADE:
            found += [one async for one in self.client.list(resource, WORKED, LABEL_PIPELINE)]
        self.children = tuple(_as_written(one) for one in found)

    async def create(self, place: str, names: Sequence[str]) -> None:
        """Create pipelines, a few at a time."""
        path = PIPELINES.path(place)

        def creating(name: str) -> Request:
            return lambda: self.client.request("POST", path, pipeline(name))

        await _spread(creating(name) for name in names)

    def children_of(self, name: str) -> list[Manifest]:
        """Return the objects of another pipeline, in the namespace that is not looked after."""
        text = json.dumps(self.children).replace('"first', f'"{name}').replace(WORKED, BARE)
        made: list[Manifest] = json.loads(text)
        return made


def measure(parts: Sequence[str]) -> Iterator[Bar]:
    """Measure the parts that were asked for, each against an API server of its own."""
    for part in parts:
        with asyncio.Runner() as runner, tempfile.TemporaryDirectory(prefix="omni") as directory:
            stack = AsyncExitStack()
            try:
                site = runner.run(stack.enter_async_context(_open_site(Path(directory))))
                runner.run(site.learn())
                yield runner.run(PARTS[part](site))
            finally:
                runner.run(stack.aclose())


async def _creation(site: Site) -> Bar:
    """One object until all its children exist, beside kubectl that applies the same children."""
    count = len(site.children)

    async def by_operator(number: int) -> float:
        goal, began = site.worked.count + count, perf_counter()
        await site.create(WORKED, [f"created-{number}"])
        seconds = await site.worked.until(goal) - began
        await site.worked.until_still()
        return seconds

    async def by_kubectl(number: int) -> float:
        file = site.kubeconfig.parent / "children.json"
        items = site.children_of(f"applied-{number}")
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        goal, began = site.bare.count + count, perf_counter()
        await asyncio.to_thread(_apply_with_kubectl, site.kubeconfig, file)
        return await site.bare.until(goal) - began

    ratios = await _alternate(by_operator, by_kubectl, CREATIONS)
    return ratios.at_most(
        1.5,
        bar="operator: object to children, over kubectl",
        method=f"from creation until {count} children exist, over `kubectl apply --server-side` "
        "of the same manifests",
    )


async def _burst(site: Site) -> Bar:
    """Many objects at once, beside a client that writes them and all their children itself."""
    made = BURST * len(site.children)

    def names(number: int) -> list[str]:
        return [f"burst-{number}-{one}" for one in range(BURST)]

    async def by_operator(number: int) -> float:
        goal, began = site.worked.count + made, perf_counter()
        await site.create(WORKED, names(number))
        seconds = await site.worked.until(goal) - began
        await site.worked.until_still()
        return seconds

    async def by_client(number: int) -> float:
        goal, began = site.bare.count + made, perf_counter()
        await site.create(BARE, names(number))
        children = (one for name in names(number) for one in site.children_of(name))
        await _spread(_applying(site.client, one) for one in children)
        return await site.bare.until(goal) - began

    ratios = await _alternate(by_client, by_operator, BURST_ROUNDS)
    return ratios.at_least(
        0.8,
        bar=f"operator: rate in a burst of {BURST}, over a bare client",
        method=f"objects and their {made} children, over an asynchronous client that applies the "
        f"same with {WORKERS} requests open",
    )


async def _memory(site: Site) -> Bar:
    """Resident memory with many objects: after their creation, and after a restart over them."""
    goal = site.worked.count + (MANY - 1) * len(site.children)
    await site.create(WORKED, [f"many-{number}" for number in range(MANY - 1)])
    await site.worked.until(goal)
    await site.worked.until_still()
    grown = rss_bytes(site.operator.pid) / MEGABYTE
    return Bar(
        f"operator: memory at {MANY} objects, MiB",
        grown,
        (grown, grown),
        "<= 160",
        grown <= 160,
        f"resident memory of the process with {MANY * len(site.children)} children",
    )


PARTS: dict[str, Callable[[Site], Coroutine[Any, Any, Bar]]] = {
    "creation": _creation,
    "burst": _burst,
    "memory": _memory,
}


def pipeline(name: str) -> Manifest:
    """Return a pipeline of two groups."""
    config = {
        "config_cls": "Qwen3TTSPipelineConfig",
        "model_path": "Qwen/Qwen3-TTS",
        "stages": {"preprocessing": {"process": "front"}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"config": config},
    }


@asynccontextmanager
async def _open_site(directory: Path) -> AsyncIterator[Site]:
    with control_plane(directory, controllers=False) as running:
        await install_definitions(running)
        configuration = await load_configuration(running.kubeconfig)
        connector = aiohttp.TCPConnector(ssl=ssl_context(configuration), limit=0)
        async with (
            open_client(configuration) as client,
            aiohttp.ClientSession(
                configuration.host,
                connector=connector,
                read_bufsize=READ_BYTES,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as session,
            _arrivals(client, session, WORKED) as worked,
            _arrivals(client, session, BARE) as bare,
        ):
            with _operator(running.kubeconfig) as operator:
                yield Site(running.kubeconfig, client, operator, worked, bare)


@asynccontextmanager
async def _arrivals(
    client: Client, session: aiohttp.ClientSession, place: str
) -> AsyncIterator[Arrivals]:
    """Make a namespace and count what comes into it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}
    await client.request("POST", NAMESPACES.path(), body)
    arrivals = Arrivals()
    following = [
        asyncio.create_task(arrivals.follow(session, resource.path(place))) for resource in MADE
    ]
    try:
        yield arrivals
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


@contextmanager
def _operator(kubeconfig: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = (
        f"--kubeconfig={kubeconfig}",
        f"--namespace={WORKED}",
        f"--lease-namespace={WORKED}",
        f"--workers={WORKERS}",
        "--stage-image=stage:1",
        "--gateway-image=gateway:1",
        "--health-port=0",
        "--metrics-port=0",
        "--log-level=ERROR",
    )
    process = subprocess.Popen([sys.executable, "-m", "omni_operator", *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _alternate(
    candidate: Callable[[int], Awaitable[float]],
    baseline: Callable[[int], Awaitable[float]],
    rounds: int,
) -> Ratios:
    """Take the seconds of both in turns."""
    ratios = []
    for number in range(rounds):
        if number % 2:
            below, above = await baseline(number), await candidate(number)
        else:
            above, below = await candidate(number), await baseline(number)
        ratios.append(above / below)
    return Ratios(tuple(ratios))


async def _spread(requests: Iterable[Request]) -> None:
    """Do requests, as many at a time as the operator has workers."""
    left = iter(requests)

    async def work() -> None:
        for request in left:
            await request()

    await asyncio.gather(*(work() for _ in range(WORKERS)))


def _applying(client: Client, manifest: Manifest) -> Request:
    return lambda: client.apply(manifest)


def _apply_with_kubectl(kubeconfig: Path, file: Path) -> None:
    subprocess.run(
        [
            program_directory() / "kubectl",
            f"--kubeconfig={kubeconfig}",
            "apply",
            "--server-side",
            f"--filename={file}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _as_written(live: Manifest) -> dict[str, Any]:
    """Return a manifest that makes an object like a live one."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    written = {key: value for key, value in live.items() if key not in ("metadata", "status")}
    if live["kind"] == "Service":
        for address in ("clusterIP", "clusterIPs"):
            if written["spec"].get(address) != "None" and written["spec"].get(address) != ["None"]:
                written["spec"].pop(address, None)
    metadata = {key: value for key, value in live["metadata"].items() if key in kept}
    return {"metadata": metadata, **written}


if __name__ == "__main__":
    sys.exit(main(measure, parts=tuple(PARTS)))
