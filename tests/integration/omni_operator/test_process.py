"""The operator as a process: how it ends, what it leaves, and who goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from omni_operator.controller.authority import SECRET_NAME
from omni_operator.controller.client import ApiError
from omni_operator.controller.resources import DEPLOYMENTS, LEASES, SECRETS, SERVICE_ACCOUNTS
from omni_operator.render.manifest import Manifest
from tests.support.operator_site import Site, eventually, pipeline
from tests.support.patience import PATIENT_SECONDS

pytestmark = pytest.mark.cluster

ACCOUNT = "operator"


async def test_a_process_that_is_told_to_stop_frees_its_lease_for_the_next(site: Site) -> None:
    await site.create(pipeline(site))
    async with operator_process(site) as first:
        await eventually(lambda: _has_deployments(site))
        first.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(first.wait(), PATIENT_SECONDS) == 0
    assert (await _lease(site))["spec"]["holderIdentity"] == ""
    async with operator_process(site):
        await eventually(lambda: _is_held(site))


async def test_what_the_operator_made_for_itself_goes_with_its_account(site: Site) -> None:
    account: Manifest = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": site.namespace},
    }
    await site.client.create(account)
    async with operator_process(site, f"--service-account={ACCOUNT}") as process:
        await eventually(lambda: _exists(site, SECRET_NAME))
        await eventually(lambda: _is_held(site))
        process.send_signal(signal.SIGTERM)
        await process.wait()
    await site.client.request("DELETE", SERVICE_ACCOUNTS.path(site.namespace, ACCOUNT))

    async def nothing_left() -> bool:
        leases = [one async for one in site.client.list(LEASES, site.namespace)]
        return not leases and not await _exists(site, SECRET_NAME)

    await eventually(nothing_left)


@asynccontextmanager
async def operator_process(site: Site, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real process that looks after the site's namespace."""
    place = site.namespace
    arguments = (
        f"--kubeconfig={site.options.kubeconfig}",
        f"--namespace={place}",
        f"--lease-namespace={place}",
        "--stage-image=stage:1",
        "--gateway-image=gateway:1",
        "--health-port=0",
        "--metrics-port=0",
        "--log-format=text",
        *more,
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "omni_operator", *arguments
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _has_deployments(site: Site) -> bool:
    return bool([one async for one in site.client.list(DEPLOYMENTS, site.namespace)])


async def _lease(site: Site) -> Manifest:
    return await site.client.get(LEASES, site.namespace, "omnipipe-operator")


async def _is_held(site: Site) -> bool:
    try:
        return bool((await _lease(site))["spec"]["holderIdentity"])
    except ApiError:
        return False


async def _exists(site: Site, secret: str) -> bool:
    found = [one async for one in site.client.list(SECRETS, site.namespace)]
    return any(one["metadata"]["name"] == secret for one in found)
