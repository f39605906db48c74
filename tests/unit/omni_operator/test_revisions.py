"""What restarts pods and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omni_operator.plan.capabilities import Capabilities
from omni_operator.plan.revisions import LiveRevision, ShapeTarget, shape_targets
from omni_operator.render.view import Release
from tests.support.objects import DRA, NO_DRA, RELEASE, speech, stage, view

NEWER = Release("stage:2", "gateway:2", "2")
GPU_0 = {"image-encoder", "audio-encoder", "thinker", "code2wav"}


def targets(
    manifest: dict[str, Any],
    live: list[LiveRevision] | None = None,
    release: Release = RELEASE,
    cluster: Capabilities = DRA,
) -> dict[str, ShapeTarget]:
    found = shape_targets(view(manifest, cluster, release), live or [])
    return {one.shape.name: one for one in found}


def running(found: dict[str, ShapeTarget], created: float = 1.0) -> list[LiveRevision]:
    return [
        LiveRevision(name, one.revision, one.pins, one.claim, created)
        for name, one in found.items()
    ]


def restarted(
    before: dict[str, Any], after: dict[str, Any], cluster: Capabilities = DRA
) -> set[str]:
    was = targets(before, cluster=cluster)
    now = targets(after, running(was), cluster=cluster)
    return {name for name, one in now.items() if one.revision != was[name].revision}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(speech(rollout={"type": "SurgeFree", "historyLimit": 9}), id="rollout policy"),
        pytest.param(speech(groups={"decode": {"scaling": {"replicas": 3}}}), id="replicas"),
        pytest.param(speech(gateway={"replicas": 3}), id="gateway"),
        pytest.param(speech(networkPolicy={"enabled": False}), id="policies"),
        pytest.param(speech(rollout={"paused": True}), id="pause"),
    ],
)
def test_what_is_not_in_pods_restarts_none(changed: dict[str, Any]) -> None:
    assert restarted(speech(), changed) == set()


@pytest.mark.parametrize(
    ("edit", "cluster", "expected"),
    [
        pytest.param(
            lambda it: stage(it, "decode", env={"A": "1"}), DRA, {"decode"}, id="own setting"
        ),
        pytest.param(
            lambda it: stage(it, "talker_ar", env={"A": "1"}), DRA, {"talker-ar"}, id="own GPU"
        ),
        pytest.param(
            lambda it: stage(it, "thinker", env={"A": "1"}), DRA, GPU_0, id="shared claim moves"
        ),
        pytest.param(
            lambda it: stage(it, "thinker", env={"A": "1"}), NO_DRA, {"gpu0"}, id="shared pod"
        ),
    ],
)
def test_an_edit_restarts_the_groups_it_touches(
    edit: Callable[[dict[str, Any]], dict[str, Any]], cluster: Capabilities, expected: set[str]
) -> None:
    assert restarted(speech(), edit(speech()), cluster) == expected


def test_without_surge_only_the_touched_group_of_a_claim_restarts_and_keeps_its_card() -> None:
    before = speech(rollout={"type": "SurgeFree"})
    was = targets(before)
    now = targets(stage(before, "thinker", env={"A": "1"}), running(was))
    assert {name for name in now if now[name].revision != was[name].revision} == {"thinker"}
    assert {now[name].claim for name in GPU_0} == {was["thinker"].claim}


def test_a_surging_card_moves_to_a_claim_of_its_own() -> None:
    was = targets(speech())
    now = targets(stage(speech(), "thinker", env={"A": "1"}), running(was))
    assert len({now[name].claim for name in GPU_0}) == 1
    assert now["thinker"].claim != was["thinker"].claim


def test_an_operator_upgrade_restarts_nothing() -> None:
    was = targets(speech())
    now = targets(speech(), running(was), NEWER)
    assert {name: one.revision for name, one in now.items()} == {
        name: one.revision for name, one in was.items()
    }
    assert all(one.pins == was[name].pins for name, one in now.items())


def test_after_an_upgrade_an_edit_renders_anew_only_what_it_touches() -> None:
    was = targets(speech())
    now = targets(stage(speech(), "decode", env={"A": "1"}), running(was), NEWER)
    images = {name: one.pins.image for name, one in now.items()}
    assert images.pop("decode") == "stage:2"
    assert set(images.values()) == {"stage:1"}


def test_an_image_that_is_no_longer_asked_for_is_not_kept() -> None:
    was = targets(speech(images={"stage": "mine:1"}))
    now = targets(speech(), running(was))
    assert {one.pins.image for one in now.values()} == {"stage:1"}


def test_the_way_back_is_the_old_revision() -> None:
    first, second = targets(speech()), targets(stage(speech(), "decode", env={"A": "1"}))
    live = [*running(first, 1.0), *running(second, 2.0)]
    assert targets(speech(), live)["decode"].revision == first["decode"].revision
