"""How groups get their GPUs, with GPUs that are counted and allocated and do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.fake_gpus.mps import attach, pod_template, programs
from tests.support.node import Manifest, Node, Pipeline
from tests.support.parrot import GROUPS, on_gpus

pytestmark = [pytest.mark.node, pytest.mark.storm, pytest.mark.slow, pytest.mark.timeout(2400)]

FAKE_CLASS = "fake-gpu"
WHICH = "import os; print(os.environ['FAKE_GPUS'])"
DAEMON = """
import os, pathlib
pipe = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
pid = int((pipe / "nvidia-cuda-mps-control.pid").read_text())
print(pid, pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")[-2])
"""
"""Seen from any container of the pod: they share a pid namespace."""


@contextmanager
def answering(node: Node, manifest: Manifest, *more: Manifest) -> Iterator[Pipeline]:
    """Run a pipeline and see that it answers."""
    with node.applied(manifest, *more) as pipeline:
        if manifest["spec"]["config"].get("mps") == "on":
            attach(pipeline, "gpu0")
        pipeline.wait_ready()
        with pipeline.client() as client:
            assert client.chat("hello", modalities=["text"]).text == "You said: hello"
        yield pipeline


def test_groups_with_a_gpu_each_get_whole_ones_of_the_device_plugin(node: Node) -> None:
    manifest = on_gpus(0, 1, 1)
    manifest["spec"]["config"]["stages"]["code2wav"]["process"] = "words"
    del manifest["spec"]["groups"]["sound"]

    with answering(node, manifest) as pipeline:
        pods = [*pipeline.pods("chat"), *pipeline.pods("words")]
        given = [pipeline.run_in(pod["metadata"]["name"], WHICH).strip() for pod in pods]

    assert sorted(given) == ["fake-gpu-0", "fake-gpu-1"]


def test_pods_share_a_device_by_one_claim(node: Node) -> None:
    sharing = {"mode": "SharedClaim", "deviceClassName": FAKE_CLASS}

    with answering(node, on_gpus(0, 0, 0, gpuSharing=sharing)) as pipeline:
        (claim,) = pipeline.read("resourceclaims")["items"]
        names = {pod for group in GROUPS for pod in pipeline.pod_names(group)}

    assert len(names) == 3
    assert {one["name"] for one in claim["status"]["reservedFor"]} == names
    (device,) = claim["status"]["allocation"]["devices"]["results"]
    assert device["driver"] == "gpu.example.com"


def test_groups_in_one_pod_share_a_device_through_an_mps_sidecar(node: Node) -> None:
    manifest = on_gpus(
        0,
        0,
        0,
        config={"mps": "on"},
        gpuSharing={"mode": "Sidecar", "deviceClassName": FAKE_CLASS},
    )
    for group in GROUPS:
        manifest["spec"]["groups"][group]["podTemplate"] = pod_template(*GROUPS)

    with answering(node, manifest, programs()) as pipeline:
        (pod,) = pipeline.pods("gpu0")
        name = pod["metadata"]["name"]
        daemons = {pipeline.run_in(name, DAEMON, group) for group in (*GROUPS, "mps")}

    assert [one["name"] for one in pod["spec"]["containers"]] == list(GROUPS)
    assert all(one["ready"] for one in pod["status"]["initContainerStatuses"])
    assert len(daemons) == 1, "every container finds the same daemon"
