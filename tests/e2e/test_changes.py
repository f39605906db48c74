"""What people change on a running pipeline costs nobody a request."""

from __future__ import annotations

import pytest

from tests.e2e.faults import Scene
from tests.support.node import SYSTEM_NAMESPACE

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(2400)]

STEP = "writer.factory.step_seconds"


def test_a_changed_setting_rolls_out(scene: Scene) -> None:
    before = scene.pipeline.pod_names("chat")

    row = scene.during(
        "changed setting rolled out",
        lambda: scene.pipeline.patch({"overrides": [{"path": STEP, "value": 0.015}]}),
    )

    assert row.failed == row.bad == 0
    assert not set(before) & set(scene.pipeline.pod_names("chat"))


@pytest.mark.storm
def test_a_change_is_taken_back(scene: Scene) -> None:
    changed = {"overrides": [{"path": STEP, "value": 0.01}]}
    revision = scene.pipeline.object()["status"]["revision"]["current"]
    scene.pipeline.patch(changed)
    scene.pipeline.wait_ready()

    row = scene.during("rollback", lambda: scene.pipeline.patch({"overrides": scene.overrides}))

    assert row.failed == row.bad == 0
    assert scene.pipeline.object()["status"]["revision"]["current"] == revision


@pytest.mark.storm
def test_another_image_rolls_out(scene: Scene) -> None:
    image = scene.node.tag_image(scene.node.image("stage"), "another")

    row = scene.during(
        "image of all stages changed", lambda: scene.pipeline.patch({"images": {"stage": image}})
    )

    assert row.failed == row.bad == 0
    images = {pod["spec"]["containers"][0]["image"] for pod in scene.pipeline.pods("chat")}
    assert images == {image}


@pytest.mark.storm
def test_a_group_grows_and_shrinks(scene: Scene) -> None:
    def scale(replicas: int) -> None:
        scene.pipeline.patch({"groups": {"sound": {"scaling": {"replicas": replicas}}}})
        scene.pipeline.wait_ready()
        assert len(scene.pipeline.pods("sound")) == replicas

    grown = scene.during("a group scaled from 1 pod to 3", lambda: scale(3))
    shrunk = scene.during("and back to 1", lambda: scale(1))

    assert grown.failed == grown.bad == shrunk.failed == shrunk.bad == 0


@pytest.mark.storm
def test_a_renamed_process_takes_over(scene: Scene) -> None:
    group = scene.pipeline.object()["spec"]["groups"]["words"]

    def rename(old: str, new: str) -> None:
        stages = {"decode": {"process": new}}
        scene.pipeline.patch({"config": {"stages": stages}, "groups": {old: None, new: group}})

    there = scene.during("process of a stage renamed", lambda: rename("words", "phrases"))
    back = scene.during("and back", lambda: rename("phrases", "words"))

    assert there.failed == there.bad == back.failed == back.bad == 0
    assert scene.pipeline.pods("phrases") == []


@pytest.mark.storm
def test_another_gateway_takes_over(scene: Scene) -> None:
    image = scene.node.tag_image(scene.node.image("gateway"), "another")

    row = scene.during(
        "image of the gateway changed",
        lambda: scene.pipeline.patch({"images": {"gateway": image}}),
    )

    assert row.failed == row.bad == 0


@pytest.mark.storm
def test_an_upgraded_operator_restarts_nobody(scene: Scene) -> None:
    scene.node.tag_image(scene.node.image("operator"), "another")
    before = scene.pipeline.pod_names()

    row = scene.during(
        "operator upgraded",
        lambda: scene.node.install("--set", "images.operator.tag=another"),
    )

    assert row.failed == row.bad == 0
    assert scene.pipeline.pod_names() == before


@pytest.mark.storm
def test_a_killed_operator_is_not_missed(scene: Scene) -> None:
    selector = "app.kubernetes.io/name=omnipipe,app.kubernetes.io/component!=stage"
    before = scene.pipeline.pod_names()

    row = scene.during(
        "operator killed",
        lambda: scene.node.kubectl(
            "-n", SYSTEM_NAMESPACE, "delete", "pod", "-l", selector, "--grace-period=0", "--force"
        ),
    )

    assert row.failed == row.bad == 0
    assert scene.pipeline.pod_names() == before
