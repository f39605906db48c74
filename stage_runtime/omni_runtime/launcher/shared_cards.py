"""The GPUs that a run shares through MPS, leased for as long as it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

from omni_config.planning.mps import CLIENT_TOKEN_VARIABLE, MpsDecision, state_root
from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.visibility import VISIBLE_DEVICES
from omni_runtime.launcher.cards import Cards, NoSharedCards
from omni_runtime.mps.daemon import LeaseTimes
from omni_runtime.mps.lease import MpsLease
from omni_runtime.mps.leasing import CardRequest, leased

_PROBE_SECONDS = 5.0


class LeasedCards:
    """Leases of a run, asked by process.

    Args:
        clients: for each process on a leased card the lease and the process's token.
    """

    def __init__(self, clients: Mapping[str, tuple[MpsLease, str]]) -> None:
        self._clients = clients
        self._leases = {lease.card: lease for lease, _ in clients.values()}

    def is_client(self, name: str) -> bool:
        return name in self._clients

    async def check_attached(self, name: str) -> None:
        lease, token = self._clients[name]
        await lease.wait_attached([token])

    async def detach(self, name: str) -> None:
        lease, token = self._clients[name]
        await lease.detach(token)

    async def watch(self) -> NoReturn:
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            for lease in self._leases.values():
                await lease.probe()


@asynccontextmanager
async def leased_cards(
    runtime: PipelineRuntime, environ: Mapping[str, str], times: LeaseTimes | None = None
) -> AsyncIterator[Cards]:
    """Lease every card that the plan shares through MPS, for the time of the block.

    Raises:
        MpsError: a card could not be leased, or one was not given back cleanly.
    """
    requests = card_requests(runtime.mps, environ)
    if not requests:
        yield NoSharedCards()
        return
    async with leased(requests, runtime.endpoints.run_id, times) as leases:
        by_card = {lease.card: lease for lease in leases}
        yield LeasedCards(
            {
                name: (by_card[card.card], runtime.mps.environment[name][CLIENT_TOKEN_VARIABLE])
                for card in runtime.mps.enabled_cards
                for name in card.clients
            }
        )


def card_requests(decision: MpsDecision, environ: Mapping[str, str]) -> list[CardRequest]:
    """Return the leases that a plan needs."""
    root = Path(state_root(environ))
    return [
        CardRequest(
            root,
            card.card,
            decision.environment[card.clients[0]][VISIBLE_DEVICES],
            decision.quota,
        )
        for card in decision.enabled_cards
    ]
