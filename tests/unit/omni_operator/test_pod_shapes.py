"""Which pods a pipeline becomes on which cluster, and what is refused rather than replaced."""

from __future__ import annotations

from typing import Any

import pytest

from omni_config.errors import ConfigError
from omni_models.catalog import registry
from omni_operator.plan.capabilities import Capabilities
from omni_operator.plan.shapes import PodPlan, plan_pods
from omni_operator.resolution import resolve_pipeline
from tests.support.objects import DRA, NO_DRA, read, speech, stage

SHARED = Capabilities(resources=frozenset({"nvidia.com/gpu.shared"}))
ON_GPU_0 = ("image-encoder", "audio-encoder", "thinker", "code2wav")


def pods(manifest: dict[str, Any], cluster: Capabilities = DRA) -> PodPlan:
    return plan_pods(resolve_pipeline(read(manifest), {}, registry()), cluster)


def with_config(manifest: dict[str, Any], **config: Any) -> dict[str, Any]:
    manifest["spec"]["config"].update(config)
    return manifest


def modes(plan: PodPlan) -> dict[str, str]:
    return {shape.name: shape.mode.value for shape in plan.shapes}


@pytest.mark.parametrize(
    ("mps", "cluster", "expected"),
    [
        pytest.param("off", DRA, dict.fromkeys(ON_GPU_0, "SharedClaim"), id="claims, no MPS"),
        pytest.param("off", NO_DRA, {"gpu0": "InContainer"}, id="no claims, no MPS"),
        pytest.param("on", DRA, {"gpu0": "Sidecar"}, id="claims and MPS"),
        pytest.param("on", NO_DRA, {"gpu0": "InContainer"}, id="MPS without claims"),
    ],
)
def test_auto_follows_the_cluster(
    mps: str, cluster: Capabilities, expected: dict[str, str]
) -> None:
    plan = pods(with_config(speech(), mps=mps), cluster)
    rest = {"preprocessing": "CPU", "decode": "CPU", "talker-ar": "Exclusive"}
    assert modes(plan) == expected | rest
    assert all(shape.mps == (mps == "on") for shape in plan.shapes if shape.name == "gpu0")


def test_a_sidecar_pod_has_a_container_per_group() -> None:
    plan = pods(with_config(speech(), mps=True))
    shape = plan.shape("gpu0")
    assert shape is not None
    assert tuple(one.name for one in shape.containers) == ON_GPU_0


def test_tensor_parallel_ranks_share_a_container_with_as_many_gpus() -> None:
    manifest = stage(speech(), "thinker", tp_size=2, gpu=[2, 3])
    shape = pods(manifest).shape("thinker")
    assert shape is not None
    assert shape.mode == "Exclusive"
    assert shape.gpus == 2
    assert shape.containers[0].groups == ("thinker_tp0", "thinker_tp1")


def test_cards_that_a_group_spans_belong_together() -> None:
    manifest = stage(stage(speech(), "thinker", tp_size=2, gpu=[0, 2]), "talker_ar", gpu=1)
    shape = pods(manifest, NO_DRA).shape("gpu0-2")
    assert shape is not None
    assert shape.gpu_ids == (0, 2)


def test_copies_of_the_plan_are_shapes_of_their_own() -> None:
    copies = {"talker_ar": {"num_replicas": 2, "replica_devices": [1, 2]}}
    plan = pods(with_config(speech(), processes=copies))
    assert {"talker-ar-r0", "talker-ar-r1"} <= modes(plan).keys()


def sharing_weights(**spec: Any) -> dict[str, Any]:
    """Return the speech pipeline with two talkers on one GPU that hold their weights once."""
    manifest = stage(
        speech(**spec), "talker_ar", gpu_memory_fraction=0.4, engine={"max_total_tokens": 1000}
    )
    copies = {"talker_ar": {"num_replicas": 2, "replica_devices": [1, 1]}}
    return with_config(manifest, weight_share="on", processes=copies)


@pytest.mark.parametrize("mps", ["off", "on"])
@pytest.mark.parametrize("cluster", [DRA, NO_DRA], ids=["claims", "no claims"])
def test_copies_that_share_weights_are_in_one_container(mps: str, cluster: Capabilities) -> None:
    plan = pods(with_config(sharing_weights(), mps=mps), cluster)
    shape = plan.shape("gpu1")
    assert shape is not None
    assert shape.mode == "InContainer"
    assert [one.groups for one in shape.containers] == [("talker_ar@r0", "talker_ar@r1")]
    assert plan.sharing["gpu1"].reason == "copies on gpu1 share weights, so they share a container"


@pytest.mark.parametrize(
    ("mode", "mps", "reason"),
    [
        ("SharedClaim", "off", "WeightsAcrossPods"),
        ("Sidecar", "on", "WeightsAcrossContainers"),
        ("Exclusive", "off", "NothingToShare"),
    ],
)
def test_a_mode_that_parts_copies_that_share_weights_is_refused(
    mode: str, mps: str, reason: str
) -> None:
    manifest = with_config(sharing_weights(gpuSharing={"mode": mode}), mps=mps)
    assert reason in [refusal.reason for refusal in pods(manifest).refusals]


def test_copies_on_the_cpu_that_share_weights_are_one_pod() -> None:
    engine = {"max_total_tokens": 1000}
    manifest = stage(speech(), "talker_ar", gpu=None, gpu_memory_fraction=None, engine=engine)
    copies = {"talker_ar": {"num_replicas": 2}, "decode": {"num_replicas": 2}}
    plan = pods(with_config(manifest, weight_share="on", processes=copies))
    shape = plan.shape("talker-ar")
    assert shape is not None
    assert shape.mode == "CPU"
    assert [one.groups for one in shape.containers] == [("talker_ar@r0", "talker_ar@r1")]
    assert {"decode-r0", "decode-r1"} <= modes(plan).keys()


@pytest.mark.parametrize(
    ("mode", "config", "cluster", "reason"),
    [
        ("SharedClaim", {}, NO_DRA, "DRAUnavailable"),
        ("Sidecar", {"mps": "on"}, NO_DRA, "DRAUnavailable"),
        ("SharedClaim", {}, Capabilities(device_classes=frozenset({"x"})), "DeviceClassMissing"),
        ("SharedClaim", {"mps": "on"}, DRA, "MPSAcrossPods"),
        ("Sidecar", {}, DRA, "MPSOff"),
        (
            "Sidecar",
            {"mps": "on"},
            Capabilities(version=28, device_classes=frozenset({"gpu.nvidia.com"})),
            "SidecarsUnavailable",
        ),
        ("Exclusive", {"mps": "on"}, DRA, "NothingToShare"),
        ("DevicePlugin", {}, NO_DRA, "ResourceNameMissing"),
    ],
)
def test_what_a_cluster_cannot_give_is_refused(
    mode: str, config: dict[str, Any], cluster: Capabilities, reason: str
) -> None:
    plan = pods(with_config(speech(gpuSharing={"mode": mode}), **config), cluster)
    assert plan.shapes == ()
    assert [refusal.reason for refusal in plan.refusals] == [reason]


@pytest.mark.parametrize(
    ("cluster", "config", "reason"),
    [
        (NO_DRA, {}, "ResourceNotAdvertised"),
        (SHARED, {"mps": "on"}, "MPSIsTheClusters"),
        (SHARED, {}, None),
    ],
)
def test_the_shared_resource_of_a_device_plugin(
    cluster: Capabilities, config: dict[str, Any], reason: str | None
) -> None:
    sharing = {"mode": "DevicePlugin", "resourceName": "nvidia.com/gpu.shared"}
    plan = pods(with_config(speech(gpuSharing=sharing), **config), cluster)
    assert [refusal.reason for refusal in plan.refusals] == ([reason] if reason else [])


def test_ranks_cannot_use_shares_of_a_gpu() -> None:
    sharing = {"mode": "DevicePlugin", "resourceName": "nvidia.com/gpu.shared"}
    manifest = stage(speech(gpuSharing=sharing), "thinker", tp_size=2, gpu=[2, 3])
    assert [one.reason for one in pods(manifest, SHARED).refusals] == ["TensorParallel"]


@pytest.mark.parametrize(
    ("manifest", "cluster", "path", "says"),
    [
        pytest.param(
            speech(groups={"thinkr": {}}), DRA, "spec.groups.thinkr", "no process group", id="name"
        ),
        pytest.param(
            speech(scale={"group": "nobody"}),
            DRA,
            "spec.scale.group",
            "no process group",
            id="scale",
        ),
        pytest.param(
            speech(groups={"thinker": {"scaling": {"replicas": 2}}}),
            DRA,
            "spec.groups.thinker.scaling",
            "fill the same GPU",
            id="more pods on one claim",
        ),
        pytest.param(
            speech(
                groups={
                    "thinker": {"nodeSelector": {"a": "1"}},
                    "code2wav": {"nodeSelector": {"a": "2"}},
                }
            ),
            NO_DRA,
            "spec.groups.code2wav.nodeSelector",
            "share a pod",
            id="disagreement in one pod",
        ),
    ],
)
def test_what_groups_of_a_pod_cannot_have(
    manifest: dict[str, Any], cluster: Capabilities, path: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        pods(manifest, cluster)
    assert refusal.value.problems[0].path == path


def test_what_one_group_of_a_pod_writes_holds_for_the_pod() -> None:
    manifest = speech(groups={"thinker": {"nodeSelector": {"gpu": "h100"}}})
    shape = pods(manifest, NO_DRA).shape("gpu0")
    assert shape is not None
    assert shape.settings.node_selector == {"gpu": "h100"}
