"""A group and a gateway: registration, both directions, refusals, cuts and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from omni_wire.control_link import SERVICE, GroupLink
from omni_wire.control_server import ControlServer
from omni_wire.credentials import Plaintext
from omni_wire.edge import Release
from omni_wire.errors import (
    ConfigMismatch,
    InstanceLost,
    ServiceError,
    StaleIncarnation,
    VersionMismatch,
)
from omni_wire.errors import Draining as DrainingError
from omni_wire.identity import GATEWAY_SOURCE, RequestKey
from omni_wire.messages import (
    Abort,
    AbortAck,
    Completed,
    Drain,
    Draining,
    GatewayMessage,
    GroupMessage,
    Hello,
    OutputFrame,
    Payload,
    Ready,
    Row,
    Stats,
    Submit,
    Welcome,
    keys_of,
)
from omni_wire.server import WireServer
from omni_wire.wire_version import WIRE_VERSION, Versions
from tests.support.edges import SMALL
from tests.support.groups import KeptGroups
from tests.support.links import Faults, FaultyLink
from tests.support.patience import PATIENT_SECONDS

A, B = RequestKey("gateway", "a"), RequestKey("gateway", "b")
HELLO = Hello(WIRE_VERSION, "hash", "rev-1", "talkers", 7, "dns:///t:1", ("talker@r0",), {"n": "1"})


@dataclass(slots=True)
class Group:
    """A group's side that keeps what it gets."""

    welcomes: list[Welcome] = field(default_factory=list)
    messages: list[GatewayMessage] = field(default_factory=list)
    stalls: list[tuple[RequestKey, bool]] = field(default_factory=list)
    lost: list[tuple[str, ServiceError]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_welcome(self, welcome: Welcome) -> None:
        self.welcomes.append(welcome)
        self.changed.set()

    def on_gateway_message(self, message: GatewayMessage, release: Release) -> None:
        self.messages.append(message)
        release()
        self.changed.set()

    def on_stall(self, key: RequestKey, stalled: bool) -> None:
        self.stalls.append((key, stalled))

    def on_gateway_lost(self, gateway: str, error: ServiceError) -> None:
        self.lost.append((gateway, error))
        self.changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENT_SECONDS):
            while not reached():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def gateway(
    directory: Path,
    registry: KeptGroups,
    name: str = "gw1",
    *,
    versions: Versions | None = None,
    lease_seconds: float = SMALL.reconnect_seconds,
    crash: bool = False,
) -> AsyncIterator[None]:
    """A gateway process; one that crashes does not say that it ends."""
    options = replace(SMALL, versions=versions or Versions(), reconnect_seconds=lease_seconds)
    control = ControlServer(name, registry, options)
    server = WireServer([SERVICE], [control.handler()], options)
    server.listen(f"unix:{directory}/gateway.sock", Plaintext())
    async with server:
        yield
        if crash:
            await server.stop(0.0)
        control.close()


@asynccontextmanager
async def group(
    directory: Path, events: Group, hello: Hello = HELLO, link: FaultyLink | None = None
) -> AsyncIterator[GroupLink]:
    target = f"unix:{directory}/gateway.sock"
    wrap = link.wrap if link is not None else None
    dialled = GroupLink(hello, target, Plaintext(), events, SMALL, wrap)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(dialled.run())
        try:
            yield dialled
        finally:
            dialled.close()


def output(step: int, *keys: RequestKey, width: int = 4) -> OutputFrame:
    rows = tuple(Row(key, step) for key in keys)
    columns = {"pcm": np.zeros((len(keys), width), np.int16)}
    return OutputFrame("code2wav", step, "audio", rows, columns)


async def test_both_directions_carry_their_messages(tmp_path: Path) -> None:
    registry, events = KeptGroups(), Group()
    said: list[GroupMessage] = [
        Ready("talker@r0", ready=True),
        Stats("talker@r0", 1, 2, 3, 0.5),
        output(0, A),
        Completed(A, "talker@r0", {"text": "hello"}),
        AbortAck(B),
        Draining(),
    ]
    async with gateway(tmp_path, registry), group(tmp_path, events) as link:
        await events.until(lambda: bool(events.welcomes))
        assert events.welcomes[0] == Welcome("gw1", WIRE_VERSION, SMALL.reconnect_seconds)
        for message in said:
            link.post(message)
        await registry.until(lambda: len(registry.messages) == len(said))
        connection = registry.groups[0]
        assert connection.hello == HELLO
        answers: list[GatewayMessage] = [
            Submit("talker@r0", Payload(A, GATEWAY_SOURCE, {"x": 1})),
            Abort(B, "client left"),
            Drain(30.0),
        ]
        connection.post(answers[0])
        await connection.abort(B, "client left")
        connection.post(answers[2])
        await connection.drain()
        await events.until(lambda: len(events.messages) == 3)
    # An abort waits for nothing.
    assert all(answer in events.messages for answer in answers)
    got = registry.messages
    assert [type(message) for message in got] == [type(message) for message in said]
    assert [got[0], got[1], got[3], got[4], got[5]] == [said[0], said[1], said[3], said[4], said[5]]


@pytest.mark.parametrize("error", [ConfigMismatch("other hash"), StaleIncarnation("old")])
async def test_a_refused_group_learns_the_reason(error: ServiceError, tmp_path: Path) -> None:
    events = Group()
    async with gateway(tmp_path, KeptGroups(refuse=error)), group(tmp_path, events):
        await events.until(lambda: bool(events.lost))
    name, seen = events.lost[0]
    assert (name, type(seen), str(seen)) == ("", type(error), str(error))


async def test_a_group_two_versions_older_is_refused(tmp_path: Path) -> None:
    events = Group()
    ahead = Versions(WIRE_VERSION + 2, WIRE_VERSION + 1)
    async with gateway(tmp_path, KeptGroups(), versions=ahead), group(tmp_path, events):
        await events.until(lambda: bool(events.lost))
    assert isinstance(events.lost[0][1], VersionMismatch)


@pytest.mark.parametrize(
    "faults",
    [pytest.param(Faults(cut_before={n}), id=f"cut before {n}") for n in range(4)]
    + [
        pytest.param(Faults(cut_after={n}, lose_acknowledgements=True), id=f"cut after {n}")
        for n in range(4)
    ],
)
async def test_a_cut_loses_and_repeats_nothing_either_way(faults: Faults, tmp_path: Path) -> None:
    registry, events, link = KeptGroups(), Group(), FaultyLink(faults)
    async with gateway(tmp_path, registry), group(tmp_path, events, link=link) as dialled:
        await registry.until(lambda: bool(registry.groups))
        for number in range(6):
            dialled.post(output(number, A))
            payload = Payload(RequestKey("gateway", str(number)), GATEWAY_SOURCE, number)
            registry.groups[0].post(Submit("talker@r0", payload))
        await registry.until(lambda: len(registry.messages) == 6)
        await events.until(lambda: len(events.messages) == 6)
        assert len(registry.groups) == 1
        assert not registry.lost
    assert [message.step for message in registry.messages if isinstance(message, OutputFrame)] == [
        *range(6)
    ]
    assert [m.payload.data for m in events.messages if isinstance(m, Submit)] == [*range(6)]
    assert {welcome.gateway for welcome in events.welcomes} == {"gw1"}


async def test_a_client_that_does_not_read_holds_up_its_own_output_alone(tmp_path: Path) -> None:
    registry, events = KeptGroups(holds=lambda key: key == A), Group()
    async with gateway(tmp_path, registry), group(tmp_path, events) as link:
        for step in range(60):
            link.post(output(step, A, width=2048))
        for step in range(60):
            link.post(output(step, B))
        await registry.until(lambda: sum(B in keys_of(m) for m in registry.messages) == 60)
        assert link.stalled(A)
        assert dict(events.stalls) == {A: True}
        registry.holds = lambda key: False
        for release in registry.kept:
            release()
        await registry.until(lambda: len(registry.messages) == 120)
        await link.drain()
        assert dict(events.stalls) == {A: False}


async def test_a_gateway_that_restarted_is_another_one(tmp_path: Path) -> None:
    events = Group()
    async with group(tmp_path, events) as link:
        async with gateway(tmp_path, KeptGroups(), crash=True):
            await events.until(lambda: bool(events.welcomes))
            assert link.gateway == "gw1"
        async with gateway(tmp_path, KeptGroups(), name="gw2"):
            await events.until(lambda: bool(events.lost))
    assert events.lost[0][0] == "gw1"
    assert isinstance(events.lost[0][1], StaleIncarnation)


async def test_a_gateway_beyond_its_lease_is_lost(tmp_path: Path) -> None:
    events = Group()
    async with group(tmp_path, events):
        async with gateway(tmp_path, KeptGroups(), lease_seconds=0.5, crash=True):
            await events.until(lambda: bool(events.welcomes))
        await events.until(lambda: bool(events.lost))
    assert events.lost[0][0] == "gw1"
    assert isinstance(events.lost[0][1], InstanceLost)


async def test_a_group_that_leaves_is_lost_at_once_and_may_return(tmp_path: Path) -> None:
    registry = KeptGroups()
    async with gateway(tmp_path, registry):
        for number in range(2):
            async with group(tmp_path, Group(), replace(HELLO, incarnation=7 + number)):
                await registry.until(lambda: len(registry.groups) == number + 1)  # noqa: B023
            await registry.until(lambda: len(registry.lost) == number + 1)  # noqa: B023
    assert [connection.hello.incarnation for connection, _ in registry.lost] == [7, 8]


async def test_a_gateway_that_stops_ends_both_sides_at_once(tmp_path: Path) -> None:
    registry, events = KeptGroups(), Group()
    async with group(tmp_path, events):
        async with gateway(tmp_path, registry):
            await events.until(lambda: bool(events.welcomes))
        assert isinstance(registry.lost[0][1], DrainingError)
        await events.until(lambda: bool(events.lost))
    assert isinstance(events.lost[0][1], DrainingError)
