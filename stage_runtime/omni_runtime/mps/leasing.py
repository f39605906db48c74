"""Takes leases: on one card, and on all cards of a run or none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from omni_config.settings import MpsQuota
from omni_runtime.mps.card_inspection import inspect
from omni_runtime.mps.card_store import CardStore, write_status
from omni_runtime.mps.control import PROGRAM, MpsControl
from omni_runtime.mps.daemon import LeaseTimes, clear, quit_daemon, start_daemon
from omni_runtime.mps.errors import MpsControlFailed, MpsProgramMissing, MpsRefused
from omni_runtime.mps.lease import ACTIVE, RETAINED, STARTING, MpsLease
from omni_runtime.mps.lease_rules import CardSeen, Join, Rebuild, Refuse, decide_acquire

_NO_QUOTA = MpsQuota()


@dataclass(frozen=True, slots=True)
class CardRequest:
    """A card to lease.

    Attributes:
        card: name of its state directory, its UUID wherever that is known.
        device: what CUDA_VISIBLE_DEVICES says for it.
        quota: limits of every process that attaches to it.
    """

    root: Path
    card: str
    device: str
    quota: MpsQuota = _NO_QUOTA
    program: str = PROGRAM


@asynccontextmanager
async def leased(
    requests: Sequence[CardRequest], owner: str, times: LeaseTimes | None = None
) -> AsyncIterator[tuple[MpsLease, ...]]:
    """Hold a lease on every card, or on none: a failure gives back those already taken, in reverse.

    Args:
        owner: run id of the holder.

    Raises:
        MpsError: a card could not be leased, or one was not given back cleanly.
    """
    async with AsyncExitStack() as stack:
        leases = []
        # Everyone takes cards in one order, so two runs never wait for each other.
        for request in sorted(requests, key=lambda each: each.card):
            lease = await acquire_lease(request, owner, times or LeaseTimes())
            stack.push_async_callback(lease.release)
            leases.append(lease)
        yield tuple(leases)


async def acquire_lease(request: CardRequest, owner: str, times: LeaseTimes) -> MpsLease:
    """Lease a card: start its daemon or join the running one.

    Args:
        owner: run id; also the first part of the clients' tokens.

    Raises:
        MpsRefused: what is there forbids it; nothing was changed.
        MpsProgramMissing: there is no control program; nothing was left behind.
        MpsControlFailed: the daemon did not start or does not answer; its state is kept.
    """
    store = CardStore(request.root, request.card)
    control = MpsControl(
        store.pipe, store.log, program=request.program, answer_seconds=times.answer
    )
    async with store.locked():
        if store.exists:
            seen = await inspect(store, control)
            match decide_acquire(seen, owner):
                case Refuse(reason):
                    raise MpsRefused(_report(store, seen, reason))
                case Join(forget):
                    await _check_quota(control, request)
                    for name in forget:
                        store.forget_owner(name)
                    descriptor = store.publish_owner(owner, ACTIVE)
                    return MpsLease(store, control, owner, descriptor, times)
                case Rebuild() as rebuild:
                    await clear(store, control, rebuild, seen.daemon_pid, times)
        descriptor = await _create(store, control, request, owner, times)
    return MpsLease(store, control, owner, descriptor, times)


async def _create(
    store: CardStore, control: MpsControl, request: CardRequest, owner: str, times: LeaseTimes
) -> int:
    store.create()
    descriptor = store.publish_owner(owner, STARTING)
    with ExitStack() as failure:
        failure.callback(os.close, descriptor)
        # A daemon may run after a failure; the next lease finds out under the lock.
        keep = failure.enter_context(ExitStack())
        keep.callback(write_status, descriptor, RETAINED)
        try:
            identity = await start_daemon(store, control, request.device, times)
        except MpsProgramMissing:
            keep.pop_all()
            store.remove()
            raise
        try:
            await control.set_quota(request.quota)
        except MpsControlFailed:
            await quit_daemon(control, identity.pid, times)
            keep.pop_all()
            store.remove()
            raise
        write_status(descriptor, ACTIVE)
        keep.pop_all()
        failure.pop_all()
    return descriptor


async def _check_quota(control: MpsControl, request: CardRequest) -> None:
    """Refuse to join a daemon whose clients are limited otherwise: the limit is the daemon's."""
    if not await control.has_quota(request.quota):
        raise MpsRefused(
            f"the MPS daemon of {request.card} is shared with other runs and limits its clients "
            f"otherwise than {request.quota}; ask for the same quota or wait until they end"
        )


def _report(store: CardStore, seen: CardSeen, reason: str) -> str:
    owners = ", ".join(
        f"{each.name} ({'running' if each.alive else 'gone'}, {each.status})"
        for each in seen.owners
    )
    pid = "none" if seen.daemon_pid is None else str(seen.daemon_pid)
    return (
        f"MPS on {store.card} cannot be used, and nothing was touched: {reason}\n"
        f"  state directory: {store.path}\n"
        f"  daemon: {seen.daemon}, process {pid}\n"
        f"  owners: {owners or 'none'}\n"
        "  once nobody uses the card any more: "
        f"echo quit | CUDA_MPS_PIPE_DIRECTORY={store.pipe} nvidia-cuda-mps-control; "
        f"rm -r {store.path}"
    )
