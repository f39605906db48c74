"""Looks at one card: which process is its daemon, who owns it, who is attached."""

from __future__ import annotations

from dataclasses import dataclass

from omni_config.planning.mps import CLIENT_TOKEN_VARIABLE
from omni_runtime.mps.card_store import CardStore
from omni_runtime.mps.control import PIPE_VARIABLE, MpsControl
from omni_runtime.mps.errors import MpsControlFailed
from omni_runtime.mps.lease_rules import CardSeen, ClientSeen, DaemonState
from omni_runtime.mps.process_identity import (
    ProcessIdentity,
    boot_id,
    environment_of,
    identity_of,
    is_ours,
    pid_namespace,
    processes_with,
)


@dataclass(frozen=True, slots=True)
class DaemonSeen:
    """What was found out about a daemon; `detail` says why it is not proven."""

    state: DaemonState
    pid: int | None = None
    detail: str = ""


async def inspect(store: CardStore, control: MpsControl, own: str | None = None) -> CardSeen:
    """Return everything about a card whose state directory exists.

    Args:
        own: owner name of the asker.

    Raises:
        MpsRefused: the record on disk is damaged.
    """
    daemon = inspect_daemon(store, control)
    clients, detail = None, daemon.detail
    if daemon.state is DaemonState.PROVEN:
        try:
            clients = await seen_clients(control)
        except MpsControlFailed as error:
            detail = str(error)
    return CardSeen(
        daemon=daemon.state,
        owners=store.owners(own),
        clients=clients,
        users=processes_with(PIPE_VARIABLE, str(store.pipe)),
        daemon_pid=daemon.pid,
        detail=detail,
    )


async def seen_clients(control: MpsControl) -> tuple[ClientSeen, ...]:
    """Return the attached processes with the tokens they were started with.

    Raises:
        MpsControlFailed: no answer.
    """
    return tuple(
        ClientSeen(ref, environment_of(ref.client_pid).get(CLIENT_TOKEN_VARIABLE, ""))
        for ref in await control.clients()
    )


def inspect_daemon(store: CardStore, control: MpsControl) -> DaemonSeen:
    """Return what can be proven about the daemon, without speaking to it.

    Raises:
        MpsRefused: the record on disk is damaged.
    """
    recorded, native = store.recorded_daemon(), control.native_pid()
    if recorded is None:
        return _unrecorded(store, native)
    if recorded.boot_id != boot_id():
        return DaemonSeen(DaemonState.ABSENT, detail="the machine was restarted since")
    if recorded.pid_namespace != pid_namespace():
        detail = f"process {recorded.pid} was started in another container"
        return DaemonSeen(DaemonState.UNKNOWN, detail=detail)
    if identity_of(recorded.pid) != recorded:
        return _after_its_end(store, recorded, native)
    if native == recorded.pid:
        return DaemonSeen(DaemonState.PROVEN, recorded.pid)
    if native is None:
        detail = f"process {recorded.pid} runs, but its native pid file cannot be read"
        return DaemonSeen(DaemonState.UNKNOWN, detail=detail)
    return _replaced(recorded, native)


def proven_identity(store: CardStore, control: MpsControl) -> ProcessIdentity | None:
    """Return who the daemon is that was just started here; null while it cannot be said."""
    native = control.native_pid()
    if native is None or not _uses(store, native):
        return None
    return identity_of(native)


def _unrecorded(store: CardStore, native: int | None) -> DaemonSeen:
    """An owner died while it started the daemon, before it could write down which it was."""
    users = processes_with(PIPE_VARIABLE, str(store.pipe))
    if users:
        detail = f"processes {', '.join(map(str, users))} use it, and no daemon is on record"
        return DaemonSeen(DaemonState.UNKNOWN, detail=detail)
    gone = "" if native is None else f"process {native} is not its daemon any more"
    return DaemonSeen(DaemonState.ABSENT, detail=gone)


def _after_its_end(store: CardStore, recorded: ProcessIdentity, native: int | None) -> DaemonSeen:
    if native is not None and native != recorded.pid and _uses(store, native):
        return _replaced(recorded, native)
    return DaemonSeen(DaemonState.ABSENT, detail=f"process {recorded.pid} has ended")


def _replaced(recorded: ProcessIdentity, native: int) -> DaemonSeen:
    detail = f"daemon identity changed from {recorded.pid} to {native}"
    return DaemonSeen(DaemonState.REPLACED, native, detail)


def _uses(store: CardStore, pid: int) -> bool:
    return is_ours(pid) and environment_of(pid).get(PIPE_VARIABLE) == str(store.pipe)
