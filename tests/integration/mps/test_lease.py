"""The life of a lease, step by step, against a fake control program and real processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from omni_config.settings import MpsQuota
from omni_runtime.mps.control import MpsControl
from omni_runtime.mps.errors import (
    MpsControlFailed,
    MpsNotAttached,
    MpsProgramMissing,
    MpsRefused,
    MpsRetained,
    MpsUnhealthy,
)
from omni_runtime.mps.leasing import leased
from omni_runtime.process_end import process_ended
from tests.support.mps import TIMES, Card


async def test_the_last_owner_ends_the_daemon_and_removes_its_state(card: Card) -> None:
    lease = await card.lease("run-a")
    clients = [await card.client("run-a/p0"), await card.client("run-a/p1")]
    daemon = card.daemon_pid
    await lease.wait_attached(["run-a/p0", "run-a/p1"])
    await lease.probe()
    for client in clients:
        await card.end(client)
    await lease.release()
    await process_ended(daemon)
    assert not card.path.exists()
    assert card.calls == ["start GPU-1", "quit"]


async def test_a_second_run_joins_and_the_first_to_leave_keeps_the_daemon(card: Card) -> None:
    first, second = await card.lease("run-a"), await card.lease("run-b")
    assert card.owners == {"run-a": "active", "run-b": "active"}
    own, other = await card.client("run-a/p0"), await card.client("run-b/p0")
    await card.end(own)
    await first.release()
    assert card.owners == {"run-b": "active"}
    await second.wait_attached(["run-b/p0"])
    await card.end(other)
    await second.release()
    assert not card.path.exists()
    assert card.calls == ["start GPU-1", "quit"]


async def test_a_process_that_never_attaches_is_named(card: Card) -> None:
    lease = await card.lease("run-a")
    await card.client("run-a/p0")
    card.bystander("run-a/p1")
    with pytest.raises(MpsNotAttached, match=r"^run-a/p1 never attached .* by time slices"):
        await lease.wait_attached(["run-a/p0", "run-a/p1"])


async def test_a_client_that_stays_keeps_the_state_until_it_is_gone(card: Card) -> None:
    lease = await card.lease("run-a")
    client = await card.client("run-a/p0")
    with pytest.raises(MpsRetained, match=rf"still attached: {client} \(run-a/p0\)"):
        await lease.release()
    assert card.owners == {"run-a": "retained"}
    with pytest.raises(MpsRefused, match=f"end them: kill {client}"):
        await card.lease("run-b")
    await card.end(client)
    await (await card.lease("run-b")).release()
    assert not card.path.exists()


async def test_a_stuck_client_is_detached_and_the_lease_given_back(card: Card) -> None:
    lease = await card.lease("run-a")
    client = await card.client("run-a/p0")
    assert [each.client_pid for each in await lease.detach("run-a/p0")] == [client]
    await lease.release()
    assert card.calls == ["start GPU-1", f"terminate_client 7 {client}", "quit"]


async def test_a_client_of_nobody_keeps_the_state(card: Card) -> None:
    lease = await card.lease("run-a")
    client = await card.client()
    with pytest.raises(MpsRetained, match=rf"{client} \(without a token\)"):
        await lease.release()
    assert "quit" not in card.calls


async def test_a_dead_owner_without_clients_is_cleaned_up(card: Card) -> None:
    await card.dead_owner("run-a")
    abandoned = card.daemon_pid
    lease = await card.lease("run-b")
    await process_ended(abandoned)
    assert card.owners == {"run-b": "active"}
    assert card.calls == ["start GPU-1", "quit", "start GPU-1"]
    await lease.release()


async def test_a_dead_owner_beside_a_living_one_is_forgotten(card: Card) -> None:
    living = await card.lease("run-a")
    await card.dead_owner("run-b")
    joined = await card.lease("run-c")
    assert card.owners == {"run-a": "active", "run-c": "active"}
    await living.release()
    await joined.release()
    assert card.calls == ["start GPU-1", "quit"]


async def test_clients_of_a_dead_owner_are_left_alone_and_named(card: Card) -> None:
    await card.dead_owner("run-a")
    client = await card.client("run-a/p0")
    with pytest.raises(MpsRefused, match=f"nothing was touched.*kill {client}\n"):
        await card.lease("run-b")
    os.kill(client, 0)
    await card.end(client)
    await (await card.lease("run-b")).release()


async def test_another_daemon_in_its_place_is_noticed_and_never_touched(card: Card) -> None:
    lease = await card.lease("run-a")
    foreign = card.bystander()
    own = card.daemon_pid
    (card.pipe / "nvidia-cuda-mps-control.pid").write_text(str(foreign))
    with pytest.raises(MpsUnhealthy, match=f"identity changed from {own} to {foreign}"):
        await lease.probe()
    with pytest.raises(MpsRetained, match="identity changed"):
        await lease.release()
    with pytest.raises(MpsRefused, match="cannot be proven"):
        await card.lease("run-b")
    os.kill(foreign, 0)
    assert card.calls == ["start GPU-1"]


async def test_a_daemon_that_died_is_replaced_once_nobody_relies_on_it(card: Card) -> None:
    lease = await card.lease("run-a")
    await card.kill_daemon()
    with pytest.raises(MpsUnhealthy, match="has ended"):
        await lease.probe()
    with pytest.raises(MpsRefused, match="these runs still use it: run-a"):
        await card.lease("run-b")
    with pytest.raises(MpsRetained):
        await lease.release()
    await (await card.lease("run-b")).release()


async def test_a_deaf_daemon_is_ended_only_when_nobody_uses_it(card: Card) -> None:
    lease = await card.lease("run-a")
    await card.tell("fake_deaf")
    with pytest.raises(MpsUnhealthy, match="get_server_list"):
        await lease.probe()
    with pytest.raises(MpsRefused, match=r"(?s)does not answer.*in use by run-a"):
        await card.lease("run-b")
    with pytest.raises(MpsRetained, match="does not answer"):
        await lease.release()
    deaf = card.daemon_pid
    again = await card.lease("run-b")
    await process_ended(deaf)
    await again.release()


async def test_no_answer_is_awaited_for_ever(card: Card) -> None:
    await card.lease("run-a")
    await card.tell("fake_mute")
    control = MpsControl(card.pipe, card.path / "log", program=card.program, answer_seconds=0.1)
    with pytest.raises(MpsControlFailed, match=r"no answer within 0.1 s"):
        await control.servers()


async def test_without_a_control_program_nothing_is_left(card: Card) -> None:
    card.program = "/nonexistent/nvidia-cuda-mps-control"
    with pytest.raises(MpsProgramMissing, match="failed to execute"):
        await card.lease("run-a")
    assert not card.path.exists()


async def test_a_failed_start_is_kept_and_cleaned_up_by_the_next(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MPS_FAULT", "start-fails")
    with pytest.raises(MpsControlFailed, match="boom"):
        await card.lease("run-a")
    assert card.owners == {"run-a": "retained"}
    monkeypatch.delenv("FAKE_MPS_FAULT")
    lease = await card.lease("run-b")
    assert card.owners == {"run-b": "active"}
    await lease.release()


async def test_one_run_holds_one_lease_per_card(card: Card) -> None:
    lease = await card.lease("run-a")
    with pytest.raises(MpsRefused, match="already holds a lease"):
        await card.lease("run-a")
    await lease.release()


async def test_all_cards_or_none(card: Card) -> None:
    second = replace(card, name="GPU-2")
    await second.lease("run-a")
    (second.pipe / "nvidia-cuda-mps-control.pid").write_text("nonsense")
    with pytest.raises(MpsRefused):
        async with leased([second.request(), card.request()], "run-b", TIMES):
            pytest.fail("no run with only one of its cards")
    assert not card.path.exists(), "the card that was taken first is given back"
    assert card.calls == ["start GPU-2", "start GPU-1", "quit"]


async def test_a_quota_is_the_daemons_so_others_must_agree(card: Card) -> None:
    quota = MpsQuota(active_thread_percentage=40, pinned_memory=2048 << 20)
    lease = await card.lease("run-a", quota)
    assert card.calls[1:] == [
        "set_default_active_thread_percentage 40",
        "set_default_device_pinned_mem_limit 0 2048M",
    ]
    with pytest.raises(MpsRefused, match="ask for the same quota"):
        await card.lease("run-b", MpsQuota(active_thread_percentage=60))
    await (await card.lease("run-b", quota)).release()
    await lease.release()


async def test_state_of_an_earlier_boot_means_nothing(card: Card) -> None:
    await card.dead_owner("run-a")
    await card.kill_daemon()
    record = card.path / "daemon.json"
    record.write_text(record.read_text().replace('"boot_id": "', '"boot_id": "earlier-'))
    await (await card.lease("run-b")).release()


async def test_a_daemon_of_another_container_cannot_be_proven(card: Card) -> None:
    lease = await card.lease("run-a")
    record = card.path / "daemon.json"
    record.write_text(record.read_text().replace("pid:[", "pid:[9"))
    with pytest.raises(MpsRefused, match="another container"):
        await card.lease("run-b")
    with pytest.raises(MpsRetained):
        await lease.release()


@pytest.mark.parametrize("fault", ["open", "link"])
async def test_a_root_that_others_can_change_is_refused(
    card: Card, fault: str, tmp_path: Path
) -> None:
    if fault == "open":
        card.root.mkdir(mode=0o755)
    else:
        (tmp_path / "elsewhere").mkdir()
        card.root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MpsRefused, match=r"private|yours alone"):
        await card.lease("run-a")
