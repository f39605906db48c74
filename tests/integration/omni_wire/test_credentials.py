"""Who is let in: mutual TLS, or plaintext where it was asked for, and nothing between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from omni_wire.credentials import Credentials, CredentialsError, MutualTls, Plaintext
from omni_wire.edge import EdgeOptions
from omni_wire.errors import InstanceLost
from omni_wire.grpc_edge import GrpcEdgeSender
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import Row, StepFrame
from omni_wire.server import WireServer
from omni_wire.stage_server import SERVICE, StageServer
from tests.support.certificates import authority
from tests.support.edges import SMALL, SOURCE, Recorder, Reports, running

A = RequestKey("gateway", "a")
IMPATIENT = replace(SMALL, reconnect_seconds=0.3)
FRAME = StepFrame("thinker", 0, (Row(A, 0),), {"x": np.zeros((1, 4))})


@asynccontextmanager
async def served(credentials: Credentials, receiver: Recorder) -> AsyncIterator[Endpoint]:
    """A stage that listens on a free port of this machine."""
    stage = StageServer(22, SMALL)
    stage.host("talker", receiver)
    server = WireServer([SERVICE], [stage.handler()], SMALL)
    port = server.listen("127.0.0.1:0", credentials)
    async with server:
        yield Endpoint("talker", f"127.0.0.1:{port}", 22)
        stage.close()


async def arrives(ours: Credentials, theirs: Credentials, options: EdgeOptions = SMALL) -> bool:
    """Whether a frame reaches a stage; False when the edge is lost instead."""
    receiver, reports = Recorder(), Reports()
    async with served(theirs, receiver) as destination:
        sender = GrpcEdgeSender(SOURCE, destination, ours, reports, options)
        async with running(sender):
            sender.post(FRAME)
            await sender.drain()
    assert all(isinstance(error, InstanceLost) for error in reports.lost)
    assert bool(receiver.messages) is not bool(reports.lost)
    return bool(receiver.messages)


async def test_processes_of_one_authority_talk(tmp_path: Path) -> None:
    ca = authority()
    assert await arrives(ca.issue(tmp_path / "a", "a"), ca.issue(tmp_path / "b", "b"))


async def test_plaintext_works_where_both_asked_for_it() -> None:
    assert await arrives(Plaintext(), Plaintext())


@pytest.mark.parametrize(
    "case", ["no certificate", "server without one", "other authority", "expired", "other name"]
)
async def test_nobody_else_is_let_in(case: str, tmp_path: Path) -> None:
    ca = authority()
    ours: Credentials = ca.issue(tmp_path / "ours", "ours")
    theirs: Credentials = ca.issue(tmp_path / "theirs", "theirs")
    match case:
        case "no certificate":
            ours = Plaintext()
        case "server without one":
            theirs = Plaintext()
        case "other authority":
            ours = authority("another").issue(tmp_path / "stranger", "stranger")
        case "expired":
            ours = ca.issue(tmp_path / "old", "old", days=-1)
        case "other name":
            assert isinstance(ours, MutualTls)
            ours = replace(ours, server_name="gateway.omni.test")
    assert not await arrives(ours, theirs, IMPATIENT)


async def test_a_renewed_certificate_serves_the_next_connection(tmp_path: Path) -> None:
    old, new = authority("old"), authority("new")
    receiver = Recorder()
    async with served(old.issue(tmp_path / "stage", "stage"), receiver) as destination:
        for number, ca in enumerate((old, new)):
            ca.issue(tmp_path / "stage", "stage")
            ours = ca.issue(tmp_path / f"sender-{number}", "sender")
            reports = Reports()
            sender = GrpcEdgeSender(SOURCE, destination, ours, reports, SMALL)
            async with running(sender):
                sender.post(FRAME)
                await receiver.count(number + 1)
            assert not reports.lost


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt"])
async def test_a_missing_file_is_named(missing: str, tmp_path: Path) -> None:
    credentials = authority().issue(tmp_path, "a")
    (tmp_path / missing).unlink()
    with pytest.raises(CredentialsError, match=missing):
        WireServer([SERVICE]).listen("127.0.0.1:0", credentials)
    sender = GrpcEdgeSender(SOURCE, Endpoint("b", "127.0.0.1:1", 2), credentials, Reports())
    with pytest.raises(CredentialsError, match=missing):
        await sender.run()


async def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="cannot listen on nowhere"):
        WireServer([SERVICE]).listen("nowhere:port", Plaintext())
