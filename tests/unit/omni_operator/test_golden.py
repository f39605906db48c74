"""The manifests of the shipped pipelines, as they were read and agreed with.

When a change is wanted: `python -m tests.support.golden`, then read the diff. A diff of a pod
template restarts pods of every user unless RENDER_VERSION is raised with it.
"""

from __future__ import annotations

import pytest

from tests.support.golden import CASES, GOLDEN, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_manifests_are_as_agreed(case: Case) -> None:
    assert case.text() == (GOLDEN / f"{case.name}.yaml").read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {case.name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pods_keep_to_the_restricted_profile(case: Case) -> None:
    """Pod Security's `restricted`, and one user for all who share a GPU."""
    for manifest in case.manifests():
        if manifest["kind"] != "Deployment":
            continue
        pod = manifest["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        assert not {"hostIPC", "hostPID", "hostNetwork"} & pod.keys()
        assert not any("hostPath" in volume for volume in pod["volumes"])
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not context["allowPrivilegeEscalation"]
            assert "runAsUser" not in context


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_names_and_ports_of_a_pod_are_unique(case: Case) -> None:
    for manifest in case.manifests():
        assert len(manifest["metadata"]["name"]) <= 63
        if manifest["kind"] != "Deployment":
            continue
        containers = manifest["spec"]["template"]["spec"]["containers"]
        ports = [port for container in containers for port in container["ports"]]
        for key in ("name", "containerPort"):
            values = [port[key] for port in ports]
            assert len(values) == len(set(values)), values
        assert all(len(port["name"]) <= 15 for port in ports)


def test_the_mps_daemon_comes_up_before_its_clients_and_shares_what_they_need() -> None:
    (case,) = (one for one in CASES if one.name == "speech-sidecar")
    pods = [
        one["spec"]["template"]["spec"] for one in case.manifests() if one["kind"] == "Deployment"
    ]
    (pod,) = (
        one for one in pods if any(it["name"] == "mps" for it in one.get("initContainers", []))
    )
    (daemon,) = pod["initContainers"]
    assert daemon["restartPolicy"] == "Always"
    assert "startupProbe" in daemon
    assert daemon["resources"]["claims"] == [{"name": "gpu"}]
    assert pod["shareProcessNamespace"]
    said = {item["name"]: item.get("value") for item in daemon["env"]}
    assert said["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert said["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=30720M"
    pipe = said["CUDA_MPS_PIPE_DIRECTORY"]
    for container in pod["containers"]:
        assert {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": pipe} in container["env"]
        assert container["resources"]["claims"] == [{"name": "gpu", "request": "gpu0"}]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {mount["mountPath"] for mount in daemon["volumeMounts"]} <= mounts
