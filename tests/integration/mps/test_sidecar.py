"""The daemon as a container of its own: answers once it runs, ends on SIGTERM."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from omni_runtime.mps.control import LOG_VARIABLE, PIPE_VARIABLE
from tests.support.mps import Card

MODULE = (sys.executable, "-m", "omni_runtime.mps.sidecar")


@pytest.fixture
def variables(card: Card, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Return the environment of the containers of a pod."""
    monkeypatch.setenv("PATH", f"{Path(card.program).parent}:{os.environ['PATH']}")
    folders = {PIPE_VARIABLE: str(card.pipe), LOG_VARIABLE: str(card.path / "log")}
    return {**os.environ, **folders}


async def started(action: str, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *MODULE, action, env=variables, stdout=asyncio.subprocess.PIPE
    )


async def test_it_answers_once_it_runs_and_ends_when_told(
    card: Card, variables: Mapping[str, str]
) -> None:
    sidecar = await started("run", variables)
    assert sidecar.stdout is not None
    assert await sidecar.stdout.readline() == b"listening\n"
    assert await (await started("check", variables)).wait() == 0
    sidecar.terminate()
    assert await sidecar.wait() == 0
    assert card.calls == ["quit"]
    assert await (await started("check", variables)).wait() == 1


async def test_a_daemon_that_dies_ends_its_container(
    card: Card, variables: Mapping[str, str]
) -> None:
    sidecar = await started("run", variables)
    assert sidecar.stdout is not None
    await sidecar.stdout.readline()
    await card.kill_daemon()
    assert await sidecar.wait() != 0


async def test_it_needs_to_know_where_clients_look() -> None:
    assert await (await started("check", {})).wait() == 2
