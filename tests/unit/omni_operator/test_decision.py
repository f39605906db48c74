"""One decision after the other, on objects that nobody but the test changes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from omni_operator.names import (
    ANNOTATION_DRAIN_STARTED,
    ANNOTATION_ROUTES,
)
from omni_operator.plan.world import (
    Annotate,
    Apply,
    CancelDrain,
    Decision,
    ObjectId,
    SetRoutable,
    StartDrain,
)
from omni_operator.render.view import Release
from tests.support.decision_site import START, Site, running
from tests.support.objects import speech, stage


def conditions(decision: Decision) -> Mapping[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in decision.status.conditions}


def test_a_new_object_becomes_a_serving_pipeline_and_then_nothing_is_done() -> None:
    site = Site(speech())
    taken = site.settle()
    last = taken[-1]
    assert conditions(last)["Ready"] == ("True", "AsExpected")
    assert conditions(last)["Routable"] == ("True", "AsExpected")
    assert last.status.groups_ready == "7/7"
    assert last.status.gpus == 2
    assert last.status.revision.current == last.status.revision.update
    again = site.decide()
    assert again.actions == ()
    assert again.events == ()
    assert again.status == last.status


def test_events_of_a_life_are_few_and_in_order() -> None:
    site = Site(speech())
    reasons = [event.reason for decision in site.settle() for event in decision.events]
    assert reasons == [
        "ConfigResolved",
        "RolloutStarted",
        "GatewayReady",
        "Routable",
        "Ready",
        "RevisionServes",
        "RolloutCompleted",
    ]


def test_an_edit_replaces_what_it_touches_and_drains_first() -> None:
    site = running()
    before = set(site.deployments())
    site.edit(stage(speech(), "decode", env={"A": "1"}))
    taken = site.settle()
    drained = [one.pod for step in taken for one in step.actions if isinstance(one, StartDrain)]
    assert len(drained) == 1
    assert drained[0].startswith("demo-decode-")
    after = site.deployments()
    assert len(set(after) - before) == 1
    assert sum(after.values()) == len(before)
    assert conditions(taken[-1])["Ready"] == ("True", "AsExpected")


def test_the_way_back_starts_the_old_deployment_again() -> None:
    site = running()
    first = {name for name, count in site.deployments().items() if count}
    site.edit(stage(speech(), "decode", env={"A": "1"}))
    site.settle()
    site.edit(speech())
    site.settle()
    assert {name for name, count in site.deployments().items() if count} == first


def test_going_there_and_back_again_repairs_nothing() -> None:
    site, reasons = running(), []
    for manifest in (stage(speech(), "decode", env={"A": "1"}), speech()):
        site.edit(manifest)
        site.step()
        site.edit(speech())
        reasons += [event.reason for one in site.settle() for event in one.events]
        site.edit(manifest)
        reasons += [event.reason for one in site.settle() for event in one.events]
    assert "DrainStarted" in reasons
    assert "DriftRepaired" not in reasons


def test_an_old_deployment_that_a_person_scaled_is_put_back_and_told() -> None:
    site = running()
    site.edit(stage(speech(), "decode", env={"A": "1"}))
    site.settle()
    (old,) = [name for name, count in site.deployments().items() if not count]
    site.objects[ObjectId("Deployment", old)]["spec"]["replicas"] = 2
    reasons = [event.reason for one in site.settle() for event in one.events]
    assert "DriftRepaired" in reasons
    assert site.deployments()[old] == 0


def test_gateways_are_made_to_read_routes_as_soon_as_they_change() -> None:
    site = running()
    gateway = site.play_gateway()
    assert site.decide().actions == (), "it has read them when it started"
    site.now += 60
    site.edit(stage(speech(), "decode", env={"A": "1"}))
    site.step()
    told = [one for one in site.step().actions if isinstance(one, Annotate)]
    assert [one.pod for one in told] == ["gateway-0"]
    before = gateway["metadata"]["annotations"][ANNOTATION_ROUTES]
    site.settle()
    site.step()
    assert gateway["metadata"]["annotations"][ANNOTATION_ROUTES] != before, "the old one is gone"
    assert site.decide().actions == ()


def test_an_operator_upgrade_writes_nothing() -> None:
    site = running()
    site.release = Release("stage:2", "gateway:2", "2")
    assert site.decide().actions == ()


@pytest.mark.parametrize(
    ("change", "condition", "reason"),
    [
        pytest.param(
            lambda it: {**it["spec"], "gatway": {}}, "Accepted", "InvalidObject", id="object"
        ),
        pytest.param(
            lambda it: stage(it, "thinkr")["spec"], "ConfigResolved", "InvalidConfig", id="config"
        ),
        pytest.param(
            lambda it: stage(it, "talker_ar", gpu=0)["spec"],
            "ConfigResolved",
            "PlanRefused",
            id="plan",
        ),
        pytest.param(
            lambda it: {**it["spec"], "profileRefs": [{"name": "gone"}]},
            "ConfigResolved",
            "ProfileMissing",
            id="profile",
        ),
        pytest.param(
            lambda it: {**it["spec"], "gpuSharing": {"mode": "Sidecar"}},
            "GPUSharingSupported",
            "MPSOff",
            id="sharing",
        ),
    ],
)
def test_an_object_that_cannot_be_carried_out_leaves_the_old_one_serving(
    change: Any, condition: str, reason: str
) -> None:
    site = running()
    site.edit({"spec": change(speech())})
    decision = site.step()
    assert decision.actions == ()
    assert conditions(decision)[condition] == ("False", reason)
    assert conditions(decision)["Routable"][0] == "True"
    assert conditions(decision)["Degraded"] == ("True", "OldRevisionServes")
    assert conditions(decision)["Ready"] == ("False", reason)
    assert any(event.type == "Warning" for event in decision.events)
    assert site.step().events == (), "the same failure is no news"
    site.edit(speech())
    assert conditions(site.settle()[-1])["Ready"][0] == "True"


def test_a_broken_object_alone_makes_nothing() -> None:
    decision = Site({**speech(), "spec": stage(speech(), "thinkr")["spec"]}).decide()
    assert decision.actions == ()
    assert conditions(decision)["Routable"] == ("False", "NoCompletePath")


def test_a_deleted_object_comes_back_as_it_was() -> None:
    site = running()
    for one, lost in list(site.objects.items()):
        del site.objects[one]
        applied = [it for it in site.decide().actions if isinstance(it, Apply)]
        assert [it.id for it in applied] == [one]
        if one != ObjectId("ConfigMap", "demo-routes"):
            assert applied[0].manifest.get("spec") == lost.get("spec")
            assert applied[0].manifest.get("data") == lost.get("data")
        site.objects[one] = lost


def test_what_a_person_changed_is_put_back_and_told() -> None:
    site = running()
    budget = site.objects[ObjectId("PodDisruptionBudget", "demo-thinker")]
    budget["spec"]["maxUnavailable"] = 5
    decision = site.step()
    (applied,) = decision.actions
    assert isinstance(applied, Apply)
    assert applied.drifted == ("spec.maxUnavailable",)
    assert [event.reason for event in decision.events] == ["DriftRepaired"]
    assert site.decide().actions == ()


def test_an_object_of_somebody_else_is_left_alone() -> None:
    site = running()
    other = deepcopy(site.objects[ObjectId("Service", "demo-thinker")])
    other["metadata"] |= {"name": "demo-other", "ownerReferences": [{"uid": "theirs"}]}
    site.objects[ObjectId("Service", "demo-other")] = other
    assert site.decide().actions == ()


def test_without_gateways_nothing_is_drained_and_no_gate_cleared() -> None:
    site = running()
    site.edit(stage(speech(), "decode", env={"A": "1"}))
    site.step()
    site.run()
    site.gateways = False
    decision = site.decide()
    forbidden = StartDrain | SetRoutable | Annotate
    assert not [one for one in decision.actions if isinstance(one, forbidden)]
    assert conditions(decision)["GatewayReady"] == ("Unknown", "GatewaysUnreachable")


def test_a_drain_that_a_pod_has_not_heard_of_is_told_again() -> None:
    site = running()
    name, pod = next(iter(site.pods.items()))
    pod["metadata"]["annotations"] = {ANNOTATION_DRAIN_STARTED: str(START)}
    actions = site.decide().actions
    told = [one for one in actions if isinstance(one, CancelDrain | Annotate)]
    assert {one.pod for one in told} == {name}, "a mark that nobody wants is taken back"


def test_scaling_follows_the_omnigroup() -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 4}
    site = Site(speech(groups={"talker_ar": {"scaling": scaling}}))
    site.settle()
    group = site.objects[ObjectId("OmniGroup", "demo-talker-ar")]
    assert group["spec"]["replicas"] == 1
    group["spec"]["replicas"] = 3
    last = site.settle()[-1]
    assert last.group_status["demo-talker-ar"].replicas == 3
    assert site.objects[ObjectId("OmniGroup", "demo-talker-ar")]["spec"]["replicas"] == 3
    target = site.objects[ObjectId("HorizontalPodAutoscaler", "demo-talker-ar")]
    assert target["spec"]["scaleTargetRef"]["kind"] == "OmniGroup"


def test_the_scale_subresource_stands_for_one_group() -> None:
    site = Site(speech(scale={"group": "decode", "replicas": 2}))
    status = site.settle()[-1].status
    assert status.scale.replicas == 2
    assert status.scale.selector == "omnipipe.dev/pipeline=demo,omnipipe.dev/process-decode=true"


def test_claims_and_configurations_live_as_long_as_pods_use_them() -> None:
    site = running()
    old = {one for one in site.objects if one.kind in ("ResourceClaim", "ConfigMap")}
    site.edit(stage(speech(), "thinker", env={"A": "1"}))
    site.step()
    assert old <= set(site.objects), "pods of the old revision still use them"
    site.edit(
        {
            "spec": {
                **stage(speech(), "thinker", env={"A": "1"})["spec"],
                "rollout": {"historyLimit": 0},
            }
        }
    )
    site.settle()
    claims = [one for one in site.objects if one.kind == "ResourceClaim"]
    assert len(claims) == 1
    assert claims[0] not in old


def test_a_group_that_is_gone_takes_its_objects_along() -> None:
    site = running()
    config = {"config_cls": "Qwen3OmniPipelineConfig", "model_path": "/models/tiny"}
    site.edit({"spec": {"config": config}})
    site.settle()
    assert ObjectId("Service", "demo-talker-ar") not in site.objects
    assert sum(site.deployments().values()) == 1
