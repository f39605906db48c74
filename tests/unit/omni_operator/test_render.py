"""Single manifests: patches of pods, what is optional, what outlives the pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from omni_operator.plan.capabilities import SCALED_OBJECT, Capabilities
from omni_operator.plan.comparison import differences
from omni_operator.plan.observed import KnownRevision
from omni_operator.plan.revisions import shape_targets
from omni_operator.render.config_maps import read_routes, routes_map
from omni_operator.render.gateway import gateway_deployment
from omni_operator.render.manifest import Manifest
from omni_operator.render.merge import merge
from omni_operator.render.optional import missing_kinds, model_cache_claim, scale_objects
from omni_operator.render.pod import stage_pod
from omni_operator.render.view import Release
from tests.support.objects import DRA, NO_DRA, speech, stage, view


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}, id="mappings merge"),
        pytest.param({"a": 1, "b": 2}, {"b": None}, {"a": 1}, id="null removes"),
        pytest.param(
            [{"name": "x", "v": 1}, {"name": "y"}],
            [{"name": "x", "w": 2}, {"name": "z"}],
            [{"name": "x", "v": 1, "w": 2}, {"name": "y"}, {"name": "z"}],
            id="named items merge",
        ),
        pytest.param(["a"], ["b"], ["b"], id="other lists are replaced"),
        pytest.param(
            [{"name": "a", "mountPath": "/x"}, {"name": "a", "mountPath": "/y"}],
            [{"name": "a", "mountPath": "/y", "readOnly": True}],
            [
                {"name": "a", "mountPath": "/x"},
                {"name": "a", "mountPath": "/y", "readOnly": True},
            ],
            id="mounts are told apart by their path",
        ),
    ],
)
def test_a_patch_merges_by_rules_that_can_be_remembered(base: Any, patch: Any, result: Any) -> None:
    assert merge(base, patch) == result


def pod_of(manifest: dict[str, Any], shape: str, cluster: Capabilities = DRA) -> Manifest:
    seen = view(manifest, cluster)
    (target,) = [one for one in shape_targets(seen, []) if one.shape.name == shape]
    return stage_pod(seen, target.shape, target.revision, target.pins, target.claim)


def test_a_pod_template_adds_but_never_takes_the_operators_labels() -> None:
    template = {
        "metadata": {
            "labels": {"team": "speech", "omnipipe.dev/group": "mine"},
            "annotations": {"note": "x"},
        },
        "spec": {
            "priorityClassName": "high",
            "containers": [{"name": "decode", "env": [{"name": "A", "value": "1"}]}],
        },
    }
    pod = pod_of(speech(groups={"decode": {"podTemplate": template}}), "decode")
    assert pod["metadata"]["labels"]["team"] == "speech"
    assert pod["metadata"]["labels"]["omnipipe.dev/group"] == "decode"
    assert pod["metadata"]["annotations"] == {"note": "x"}
    assert pod["spec"]["priorityClassName"] == "high"
    (container,) = pod["spec"]["containers"]
    assert {"name": "A", "value": "1"} in container["env"]
    assert any(one["name"] == "POD_IP" for one in container["env"]), "ours stay"


def test_an_init_container_of_a_pod_template_runs_the_image_of_the_stages_unless_it_has_one() -> (
    None
):
    prepare = {"name": "prepare", "command": ["make", "it"]}
    other = {"name": "other", "image": "busybox:1", "securityContext": {"runAsUser": 1}}
    template = {"spec": {"initContainers": [prepare, other]}}
    pod = pod_of(speech(groups={"decode": {"podTemplate": template}}), "decode")["spec"]
    ours, theirs = pod["initContainers"]
    (stages,) = pod["containers"]
    assert ours["command"] == ["make", "it"]
    assert ours["image"] == stages["image"]
    assert ours["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert theirs == other


@pytest.mark.parametrize(
    ("manifest", "shape", "resources"),
    [
        pytest.param(
            stage(speech(), "thinker", tp_size=2, gpu=[2, 3]),
            "thinker",
            {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}},
            id="ranks",
        ),
        pytest.param(
            speech(groups={"talker_ar": {"resources": {"requests": {"cpu": 2}}}}),
            "talker-ar",
            {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "2", "nvidia.com/gpu": "1"}},
            id="beside what was written",
        ),
        pytest.param(speech(), "decode", {}, id="on the CPU"),
    ],
)
def test_gpus_of_a_container(manifest: dict[str, Any], shape: str, resources: Manifest) -> None:
    (container,) = pod_of(manifest, shape)["spec"]["containers"]
    assert container["resources"] == resources


def test_a_download_comes_first_and_alone_sees_the_token() -> None:
    manifest = speech(model={"repo": "Qwen/Q", "tokenSecretRef": {"name": "hub"}})
    del manifest["spec"]["config"]["model_path"]
    pod = pod_of(manifest, "decode")["spec"]
    (download,) = pod["initContainers"]
    assert download["command"][-4:-2] == ["--directory", "/models/Qwen--Q/main"]
    assert any(one["name"] == "HF_TOKEN" for one in download["env"])
    for container in pod["containers"]:
        assert not any(one["name"] == "HF_TOKEN" for one in container["env"])


def test_the_model_cache_outlives_its_pipeline() -> None:
    claim = model_cache_claim(view(speech(modelCache={"size": "10Gi"})))
    assert claim is not None
    assert "ownerReferences" not in claim["metadata"]
    assert model_cache_claim(view(speech(modelCache={"claimName": "mine"}))) is None


def test_keda_scales_the_omnigroup_where_it_exists() -> None:
    scaling = {
        "maxReplicas": 4,
        "autoscaler": "ScaledObject",
        "prometheusAddress": "http://prometheus:9090",
    }
    manifest = speech(groups={"decode": {"scaling": scaling}})
    with_keda = Capabilities(kinds=frozenset({SCALED_OBJECT}))
    kinds = [one["kind"] for one in scale_objects(view(manifest, with_keda), {})]
    assert kinds == ["OmniGroup", "ScaledObject"]
    assert missing_kinds(view(manifest, NO_DRA)) == {
        SCALED_OBJECT: "spec.groups.decode.scaling.autoscaler"
    }


def test_gateways_restart_for_what_they_read_only() -> None:
    live = gateway_deployment(view(speech()), None)
    same = stage(speech(), "thinker", env={"A": "1"})
    upgraded = Release("stage:2", "gateway:2", "2")
    for changed in (view(same), view(speech(), release=upgraded)):
        assert gateway_deployment(changed, live)["spec"] == live["spec"]
    other = speech()
    other["spec"]["config"]["stream_delivery"] = {"max_total_backlog_bytes": 1024}
    assert gateway_deployment(view(other), live)["spec"] != live["spec"]


def test_revisions_are_remembered_through_the_routes() -> None:
    known = KnownRevision("r1", {"decode": "d1"}, 5.0, served=True, groups={"decode": "decode"})
    live = routes_map(view(speech()), [known])
    assert read_routes(live) == (known,)
    assert read_routes(None) == ()
    assert read_routes({**live, "data": {"routes.json": "{"}}) == ()


@pytest.mark.parametrize(
    ("wanted", "found", "paths"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, (), id="more is fine"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, ("a.b",), id="other value"),
        pytest.param({"a": [1]}, {"a": [1, 2]}, ("a",), id="an added item"),
        pytest.param({"a": {}, "b": []}, {}, (), id="empty is absent"),
        pytest.param({"cpu": "1000m"}, {"cpu": "1"}, (), id="quantities"),
        pytest.param(
            {"c": [{"name": "x", "v": 1}]}, {"c": [{"name": "x", "v": 2}]}, ("c[x].v",), id="items"
        ),
    ],
)
def test_drift_is_found_field_by_field(
    wanted: Manifest, found: Manifest, paths: tuple[str, ...]
) -> None:
    assert differences(wanted, found) == paths
