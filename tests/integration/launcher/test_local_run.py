"""Real processes under the launcher: stand-ins that fail, hang, die and leave children behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from omni_config.errors import OmniError
from omni_runtime.launcher import local_run
from omni_runtime.launcher.cards import Cards, NoSharedCards
from omni_runtime.launcher.child_process import Command
from omni_runtime.launcher.local_processes import LocalProcess
from omni_runtime.launcher.local_run import LocalRun
from omni_runtime.launcher.roles import Patience, Role
from omni_runtime.process_end import process_ended
from tests.support.displays import WatchedDisplay
from tests.support.own_signals import ended_by_signal
from tests.support.patience import PATIENT_SECONDS

STAND_IN = (sys.executable, "-m", "tests.support.stand_in_process")
PATIENCE = Patience(
    terminate=PATIENT_SECONDS, drain=PATIENT_SECONDS, kill=PATIENT_SECONDS, first_restart=0.01
)
HURRIED = replace(PATIENCE, terminate=0.3, drain=0.3)
"""With those that do not end when they are told to."""
GATEWAY = Role("gateway", stop_rank=0, drains=True)


@asynccontextmanager
async def running(
    folder: Path,
    *roles: Role,
    cards: Cards | None = None,
    patience: Patience = PATIENCE,
    **behaviour: str,
) -> AsyncIterator[tuple[WatchedDisplay, asyncio.Task[int]]]:
    """Run stand-ins; whatever happens, the run is over afterwards."""
    for name, words in behaviour.items():
        (folder / name).write_text(words)
    display = WatchedDisplay()
    processes = [LocalProcess(role, Command([*STAND_IN, str(folder), role.name])) for role in roles]
    run = asyncio.create_task(LocalRun(processes, display, patience, cards).run())
    try:
        yield display, run
    finally:
        await ended_by_signal(run)


def pid_in(line: str) -> int:
    return int(line.split()[-1])


async def ends(pid: int) -> None:
    async with asyncio.timeout(PATIENT_SECONDS):
        await process_ended(pid)


async def test_ready_then_stopped_in_order(tmp_path: Path) -> None:
    async with running(tmp_path, GATEWAY, Role("talker")) as (display, run):
        await display.saw("all ready at")
        os.kill(os.getpid(), signal.SIGINT)
        assert await run == 0
    told = [line for line in display.lines if "was told to stop" in line]
    assert told == ["gateway | gateway was told to stop", "talker | talker was told to stop"]
    assert display.lines[-1] == "closed"


async def test_a_child_that_fails_at_start_shows_its_last_lines_and_ends_the_run(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, GATEWAY, Role("talker"), talker="fails") as (display, run):
        assert await run == 1
    shown = await display.saw("failure | talker: exit code 3")
    assert shown.endswith("loading / cannot find the weights")
    for begun in [line for line in display.lines if "gateway begins as" in line]:
        await ends(pid_in(begun))


async def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    display = WatchedDisplay()
    missing = LocalProcess(Role("talker"), Command([str(tmp_path / "missing")]))
    assert await LocalRun([missing], display, PATIENCE).run() == 1
    assert "missing cannot be executed" in await display.saw("failure | talker: exit code 127")


async def test_a_killed_group_is_restarted_and_the_others_go_on(tmp_path: Path) -> None:
    async with running(tmp_path, GATEWAY, Role("talker")) as (display, _):
        await display.saw("all ready at")
        os.kill(pid_in(await display.saw("talker begins as")), signal.SIGKILL)
        await display.saw("failure | talker: killed by SIGKILL")
        await display.saw("omni | talker: ready again")
        assert len([line for line in display.lines if "gateway begins as" in line]) == 1


async def test_a_group_whose_main_loop_stands_still_is_killed_and_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_run, "SILENT_SECONDS", 0.2)
    async with running(tmp_path, GATEWAY, Role("talker"), talker="freezes") as (display, _):
        await display.saw("talker begins as")
        (tmp_path / "talker").write_text("")
        await display.saw("omni | talker: is stuck; killing it")
        await display.saw("omni | talker: ready again")


async def test_a_stubborn_process_and_its_children_are_killed(tmp_path: Path) -> None:
    async with running(tmp_path, Role("talker"), patience=HURRIED, talker="stubborn parent") as (
        display,
        run,
    ):
        await display.saw("all ready at")
        grandchild = pid_in(await display.saw("has child"))
        os.kill(os.getpid(), signal.SIGTERM)
        assert await run == 0
    assert "omni | talker: did not end after SIGTERM; killing it" in display.lines
    await ends(grandchild)


async def test_what_a_dead_group_left_behind_is_killed_before_its_restart(tmp_path: Path) -> None:
    async with running(tmp_path, Role("talker"), talker="parent") as (display, _):
        await display.saw("all ready at")
        grandchild = pid_in(await display.saw("has child"))
        os.kill(pid_in(await display.saw("talker begins as")), signal.SIGKILL)
        await display.saw("has child", times=2)
        await ends(grandchild)


class RefusingCards(NoSharedCards):
    """A card to which `talker` never attaches, and which notes who is detached."""

    def __init__(self) -> None:
        self.detached: list[str] = []

    def is_client(self, name: str) -> bool:
        return name == "talker"

    async def check_attached(self, name: str) -> None:
        raise OmniError(f"{name} never attached")

    async def detach(self, name: str) -> None:
        self.detached.append(name)


async def test_a_process_that_never_attaches_to_its_card_is_not_ready(tmp_path: Path) -> None:
    cards = RefusingCards()
    roles = (GATEWAY, Role("talker"))
    async with running(tmp_path, *roles, cards=cards, patience=HURRIED, talker="stubborn") as (
        display,
        run,
    ):
        assert await run == 1
    await display.saw("omni | : stopping: talker never attached")
    assert not any("talker: ready" in line for line in display.lines)
    assert cards.detached == ["talker"], "a stuck client is detached before it is killed"


@pytest.mark.parametrize("signals", [2, 3])
async def test_impatience_shortens_a_stop(tmp_path: Path, signals: int) -> None:
    async with running(tmp_path, Role("talker"), patience=HURRIED, talker="stubborn") as (
        display,
        run,
    ):
        await display.saw("all ready at")
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)
        assert await run == 0
    await ends(pid_in(await display.saw("talker begins as")))
