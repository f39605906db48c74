"""`/livez` tells whether the operator does its work, and `/readyz` whether it could."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from omni_operator.controller.gateways import GatewayAddress
from omni_operator.controller.operator import Operator
from omni_operator.plan.world import GatewaysSeen
from tests.support.operator_site import Site, eventually, pipeline
from tests.support.pod_traffic import PlayedTraffic

pytestmark = pytest.mark.cluster


class DeafTraffic(PlayedTraffic):
    """Gateways that take a question and never answer it."""

    async def seen(self, gateways: GatewayAddress) -> GatewaysSeen | None:
        await asyncio.Event().wait()
        return None


async def test_a_turn_that_never_ends_is_found_though_the_process_answers(site: Site) -> None:
    site.traffic = DeafTraffic(site.traffic.running)
    operator = site.start_operator(stalled_seconds=1.0)
    await site.create(pipeline(site))

    async def says_so() -> bool:
        if not operator.health_port:
            return False
        status, text = await _probe(operator, "/livez")
        return status == 503 and f"the turn of {site.namespace}/tts takes" in text

    await eventually(says_so)
    assert (await _probe(operator, "/readyz"))[0] == 200


async def test_one_that_waits_for_its_lease_is_well(site: Site) -> None:
    site.start_operator(identity="first")
    await site.until_waiting()
    second = site.start_operator(identity="second")
    await eventually(lambda: _is_ready(second))
    assert (await _probe(second, "/livez"))[0] == 200


async def _is_ready(operator: Operator) -> bool:
    return operator.health_port > 0 and (await _probe(operator, "/readyz"))[0] == 200


async def _probe(operator: Operator, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{operator.health_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()
