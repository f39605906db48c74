"""What pods say of themselves, on its way into the status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from omni_operator.controller.pod_words import ask_pods, is_downloading
from omni_operator.names import ANNOTATION_MPS_CLIENTS
from omni_operator.plan.world import PodTold
from tests.support.decision_site import Site
from tests.support.objects import speech
from tests.support.pod_traffic import PlayedTraffic

GIB = 1 << 30
MODEL = {"repo": "Qwen/Qwen3-Omni", "revision": "abc"}


def pod(name: str, *, clients: int = 0, ready: bool = True, download: str = "") -> dict[str, Any]:
    status = "True" if ready else "False"
    return {
        "metadata": {
            "name": name,
            "annotations": {ANNOTATION_MPS_CLIENTS: str(clients)} if clients else {},
        },
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        "status": {
            "podIP": f"10.0.0.{len(name)}",
            "conditions": [{"type": "ContainersReady", "status": status}],
            "initContainerStatuses": [{"name": "download", "state": {download: {}}}]
            if download
            else [],
        },
    }


async def test_only_pods_that_have_something_to_tell_are_asked() -> None:
    pods = [
        pod("shares", clients=3),
        pod("starts", clients=3, ready=False),
        pod("plain pod"),
        pod("loads", download="running", ready=False),
        pod("has loaded", download="terminated"),
    ]
    answers = {"shares": "1\n", "loads": '{"bytes": 5, "of": 9}'}

    def answer(one: Mapping[str, Any], path: str) -> str:
        assert path == ("/mps" if one["metadata"]["name"] == "shares" else "/progress")
        return answers[one["metadata"]["name"]]

    traffic = PlayedTraffic(lambda: iter(pods), answers=answer)
    told = await ask_pods(traffic, pods)
    assert told == {"shares": PodTold(mps_attached=2), "loads": PodTold(downloaded=(5, 9))}
    assert [one["metadata"]["name"] for one in pods if is_downloading(one)] == ["loads"]


@pytest.mark.parametrize("said", [None, "", "<html>", "{}", '{"bytes": "many", "of": 1}', "[]"])
async def test_an_answer_that_makes_no_sense_is_none(said: str | None) -> None:
    pods = [pod("shares", clients=1), pod("loads", download="running")]
    traffic = PlayedTraffic(lambda: iter(pods), answers=lambda *_: said)
    assert await ask_pods(traffic, pods) == {}


def test_the_status_says_how_many_processes_are_attached_of_how_many() -> None:
    manifest = speech(gpuSharing={"mode": "InContainer"})
    manifest["spec"]["config"]["mps"] = True
    site = Site(manifest)
    site.settle()
    (name, clients) = next(
        (name, int(one["metadata"]["annotations"][ANNOTATION_MPS_CLIENTS]))
        for name, one in site.pods.items()
        if ANNOTATION_MPS_CLIENTS in one["metadata"]["annotations"]
    )
    assert clients > 1
    rows = {one.name: one.mps for one in site.decide().status.groups}
    assert set(rows.values()) == {""}, "nobody said anything yet"

    site.told[name] = PodTold(mps_attached=clients)
    status = site.decide().status
    assert [one.mps for one in status.groups if one.mps] == [f"attached {clients}/{clients}"]
    supported = status.condition("GPUSharingSupported")
    assert supported is not None
    assert supported.status == "True"

    site.told[name] = PodTold(mps_attached=clients - 1)
    supported = site.decide().status.condition("GPUSharingSupported")
    assert supported is not None
    assert (supported.status, supported.reason) == ("False", "MPSNotAttached")
    assert f"{clients - 1} of {clients} processes" in supported.message


def test_the_status_says_how_far_a_download_is() -> None:
    manifest = speech(model=MODEL)
    del manifest["spec"]["config"]["model_path"]
    site = Site(manifest)
    site.step()
    site.run()
    for one in site.pods.values():
        waits = {"name": "download", "ready": False, "state": {"running": {}}}
        one["status"]["initContainerStatuses"] = [waits]
    names = list(site.pods)
    model = site.decide().status.model
    assert (model.source, model.phase) == ("Qwen/Qwen3-Omni@abc", "Downloading")
    assert model.progress == f"0/{len(names)} pods have it"

    site.told[names[0]] = PodTold(downloaded=(12 * GIB, 64 * GIB))
    model = site.decide().status.model
    assert model.progress == f"12.0 GiB of 64.0 GiB (18 %), 0/{len(names)} pods have it"

    for one in site.pods.values():
        one["status"]["initContainerStatuses"][0]["ready"] = True
    model = site.decide().status.model
    assert (model.phase, model.progress) == ("Ready", "")
