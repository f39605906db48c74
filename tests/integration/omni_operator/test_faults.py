"""Whatever breaks between the operator and the API server, the end is the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from omni_operator.controller.resources import LEASES, OWNED, Resource
from omni_operator.render.manifest import Manifest
from tests.support.api_proxy import Fault, Request
from tests.support.end_state import end_state
from tests.support.operator_site import Site, eventually, pipeline

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.storm,
    # Of a kopf that is ended before it has begun, watchers are left that were never started.
    pytest.mark.filterwarnings("ignore:coroutine 'watcher' was never awaited:RuntimeWarning"),
]


async def test_an_operator_killed_after_every_single_write_ends_where_another_does(
    site: Site,
) -> None:
    wanted = await _uninterrupted(site)
    await site.create(pipeline(site))
    kills = await _run_with_kills(site)
    assert kills >= len(wanted)
    assert end_state(await site.owned("tts")) == wanted


async def test_a_rollout_survives_a_kill_after_every_single_write(site: Site) -> None:
    await site.create(pipeline(site))
    site.start_operator()
    await site.until_ready("tts")
    await site.edit("tts", ENGINE_EDIT)
    await site.until_ready("tts")
    wanted = await _settled(site)
    await site.delete_and_wait("tts")

    await site.create(pipeline(site))
    await site.until_ready("tts")
    await site.stop_operators()
    await site.edit("tts", ENGINE_EDIT)
    await _run_with_kills(site)
    await _until(site, wanted)


async def test_a_second_operator_waits_for_the_first_to_be_gone(site: Site) -> None:
    first = site.start_operator(identity="first")
    await site.until_waiting()
    second = site.start_operator(identity="second")
    await site.create(pipeline(site))
    await site.until_ready("tts")
    assert await _holder(site) == "first"
    assert second.metrics.registry.get_sample_value("omnipipe_operator_leader") == 0.0
    writes = "omnipipe_operator_reconciles_total"
    assert second.metrics.registry.get_sample_value(writes, {"result": "done"}) is None
    assert (first.metrics.registry.get_sample_value(writes, {"result": "done"}) or 0) > 0

    await site.stop_operator(first)
    await site.edit("tts", ENGINE_EDIT)
    await site.until_ready("tts")
    assert await _holder(site) == "second"


@pytest.mark.parametrize("status", [409, 429, 500, 0], ids=["409", "429", "500", "cut"])
async def test_a_storm_of_refused_writes_changes_nothing_of_the_end(
    site: Site, status: int
) -> None:
    wanted = await _uninterrupted(site)
    site.proxy.fate = _every_other(lambda one: one.is_write, Fault(status=status))
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    assert end_state(await site.owned("tts")) == wanted


async def test_a_storm_of_refused_reads_changes_nothing_of_the_end(site: Site) -> None:
    wanted = await _uninterrupted(site)
    site.proxy.fate = _every_other(lambda one: one.method == "GET", Fault(status=500))
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    assert end_state(await site.owned("tts")) == wanted


async def test_a_revoked_role_stops_the_operator_until_it_is_given_back(site: Site) -> None:
    binding = await _grant(site)
    site.proxy.user = f"system:serviceaccount:{site.namespace}:operator"
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    wanted = await _settled(site)

    await site.client.request("DELETE", BINDINGS.path(site.namespace, "operator"))
    site.proxy.drop_watches()
    deployment = next(name for kind, name in await site.owned("tts") if kind == "Deployment")
    await site.client.request("DELETE", _owned("deployments").path(site.namespace, deployment))

    async def refused() -> bool:
        return 403 in site.proxy.statuses

    await eventually(refused)
    await site.post(BINDINGS.path(site.namespace), binding)
    await _until(site, wanted)


async def test_what_happens_while_watches_are_cut_is_noticed(site: Site) -> None:
    operator = site.start_operator(audit_seconds=0.5)
    await site.create(pipeline(site))
    await site.until_ready("tts")
    wanted = await _settled(site)
    site.proxy.fate = lambda one: Fault(status=500) if one.is_watch else None
    site.proxy.drop_watches()
    for (kind, name), one in (await site.owned("tts")).items():
        if kind in ("Service", "NetworkPolicy"):
            await site.remove(one)
            assert name
    site.proxy.fate = lambda _: None
    await _until(site, wanted)
    assert not list(operator.faults())


ENGINE_EDIT: Manifest = {
    "spec": {"config": {"stages": {"tts_engine": {"engine": {"max_running_requests": 3}}}}}
}
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


async def _uninterrupted(site: Site) -> dict[str, Any]:
    """Return what a pipeline ends as when nothing goes wrong; leaves nothing behind."""
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    wanted = await _settled(site)
    await site.delete_and_wait("tts")
    await site.stop_operators()
    return wanted


async def _settled(site: Site) -> dict[str, Any]:
    return end_state(await site.owned("tts"))


async def _until(site: Site, wanted: dict[str, Any]) -> None:
    async def same() -> bool:
        return end_state(await site.owned("tts")) == wanted

    await eventually(same, lambda: site.describe("tts"))
    await site.until_ready("tts")


async def _run_with_kills(site: Site) -> int:
    """Run operators each of which dies right after its first write, until the pipeline is Ready
    and a last one has nothing to do; returns how many died."""
    for kills in itertools.count():
        dying = asyncio.Event()
        site.proxy.fate = _death(dying)
        operator = site.start_operator()
        quiet = asyncio.create_task(_quiet(site, operator))
        died = asyncio.create_task(dying.wait())
        await asyncio.wait((quiet, died), return_when=asyncio.FIRST_COMPLETED)
        for task in (quiet, died):
            task.cancel()
        await asyncio.gather(quiet, died, return_exceptions=True)
        await site.stop_operators()
        if not dying.is_set():
            site.proxy.fate = lambda _: None
            return kills
    raise AssertionError("unreachable")


def _death(dying: asyncio.Event) -> Callable[[Request], Fault | None]:
    """Let one counted write through and lose its answer; then nothing passes any more."""

    def fate(request: Request) -> Fault | None:
        if dying.is_set():
            return Fault()
        if request.is_write and "/leases" not in request.path:
            dying.set()
            return Fault(after=True)
        return None

    return fate


async def _quiet(site: Site, operator: Any) -> None:
    """Return when the pipeline is Ready and the operator had its turn."""
    done = "omnipipe_operator_reconciles_total"

    async def had_its_turn() -> bool:
        turns = operator.metrics.registry.get_sample_value(done, {"result": "done"})
        return bool(turns) and (await site.condition("tts")).get("status") == "True"

    await eventually(had_its_turn, lambda: site.describe("tts"))


def _every_other(
    concerned: Callable[[Request], bool], fault: Fault
) -> Callable[[Request], Fault | None]:
    """Refuse each request of a kind the first time it comes, and let it pass the next time."""
    refused: set[tuple[str, str]] = set()

    def fate(request: Request) -> Fault | None:
        if not concerned(request) or request.is_watch:
            return None
        key = request.method, request.path
        if key in refused:
            refused.discard(key)
            return None
        refused.add(key)
        return fault

    return fate


async def _holder(site: Site) -> str:
    lease = await site.client.get(LEASES, site.namespace, site.options.lease.name)
    return str(lease["spec"]["holderIdentity"])


async def _grant(site: Site) -> Manifest:
    """Give the operator's service account all it needs in the namespace; returns the binding."""
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": site.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": "operator", "namespace": site.namespace},
        "roleRef": role,
        "subjects": [subject],
    }
    await site.post(BINDINGS.path(site.namespace), binding)
    return binding


def _owned(plural: str) -> Resource:
    return next(one for one in OWNED if one.plural == plural)
