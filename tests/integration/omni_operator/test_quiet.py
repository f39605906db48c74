"""An operator that has nothing to do writes nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from omni_operator.controller.client import MERGE_PATCH
from omni_operator.controller.lease import LeaseOptions
from omni_operator.controller.operator import Operator
from omni_operator.controller.resources import DEPLOYMENTS, PIPELINES
from tests.support.operator_site import Site, eventually, pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.storm]

RESTART_SECONDS = 90.0
"""Until every one of 200 pipelines was looked at; on a busy machine with two cores."""
DONE = "omnipipe_operator_reconciles_total"


async def test_resyncs_and_unrelated_changes_of_children_cost_no_write(site: Site) -> None:
    operator = site.start_operator(resync_seconds=0.5)
    await site.create(pipeline(site))
    await site.until_ready("tts")
    await _turns(operator, 3)
    site.proxy.requests.clear()
    await _turns(operator, 3)
    deployment = next(name for kind, name in await site.owned("tts") if kind == "Deployment")
    note = {"metadata": {"annotations": {"example.org/note": "mine"}}}
    path = DEPLOYMENTS.path(site.namespace, deployment)
    await site.client.request("PATCH", path, note, MERGE_PATCH)
    await _turns(operator, 3)
    assert site.proxy.counted() == []


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(6, id="6"),
        pytest.param(200, id="200", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
async def test_a_restart_over_many_pipelines_costs_no_write(site: Site, count: int) -> None:
    calm = {"resync_seconds": 3600.0, "lease": LeaseOptions(site.namespace)}
    operator = site.start_operator(**calm)
    for number in range(count):
        await site.create(pipeline(site, f"tts-{number}"))
    await eventually(lambda: _all_ready(site, count), seconds=30.0 + 3.0 * count)
    await _until_still(site, operator)
    await site.stop_operators()
    site.proxy.requests.clear()

    began = time.monotonic()
    again = site.start_operator(**calm)
    await _turns(again, count)
    took = time.monotonic() - began
    print(f"a restart over {count} pipelines, {len(again.store)} objects: {took:.1f} s")
    assert took < RESTART_SECONDS
    await _until_still(site, again)
    assert site.proxy.counted() == []


async def _turns(operator: Operator, count: int) -> None:
    """Return after so many more turns of the operator."""

    def done() -> float:
        return operator.metrics.registry.get_sample_value(DONE, {"result": "done"}) or 0.0

    goal = done() + count

    async def reached() -> bool:
        return done() >= goal

    await eventually(reached, seconds=90.0 + count)


async def _all_ready(site: Site, count: int) -> bool:
    """Whether so many pipelines are Ready; asks for all of them at once."""
    await asyncio.sleep(0.5)
    ready = 0
    async for one in site.client.list(PIPELINES, site.namespace):
        conditions = (one.get("status") or {}).get("conditions") or ()
        ready += any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
    return ready == count


async def _until_still(site: Site, operator: Operator) -> None:
    """Return once no request but Lease renewals has come for a while and no pipeline is due."""

    async def still() -> bool:
        before = len(site.proxy.counted())
        await asyncio.sleep(3.0)  # longer than the pause between two writes of a status
        return len(site.proxy.counted()) == before and not operator.queue.ready()

    await eventually(still, seconds=90.0)
