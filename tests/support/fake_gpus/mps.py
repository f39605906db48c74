"""NVIDIA's MPS control program for pods of a cluster with fake GPUs: mounted where it would lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import fake_mps_control
from tests.support.node import Pipeline

PROGRAM = "nvidia-cuda-mps-control"
SOURCE = "fake_mps_control.py"
FOLDER = "/opt/fake-mps"
CALLS = "/tmp/mps-calls"
"""Where the daemon notes what is asked of it, in the pod."""


def programs() -> dict[str, Any]:
    """Return the ConfigMap with the program."""
    source = Path(fake_mps_control.__file__).read_text()
    wrapper = f'#!/bin/sh\nexec python3 -I -S {FOLDER}/{SOURCE} "$@"\n'
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "fake-mps"},
        "data": {PROGRAM: wrapper, SOURCE: source},
    }


def pod_template(*containers: str) -> dict[str, Any]:
    """Return a podTemplate that gives the program to the MPS sidecar and to these containers, as
    NVIDIA's runtime does to every container with a GPU."""
    volume = {"name": "fake-mps", "configMap": {"name": "fake-mps", "defaultMode": 0o755}}
    return {
        "spec": {
            "initContainers": [_with_program("mps")],
            "containers": [_with_program(name) for name in containers],
            "volumes": [volume],
        }
    }


_ATTACH = f"""
import os, pathlib, sys
sys.path.insert(0, "{FOLDER}")
import fake_mps_control
pipe = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
for pid in filter(str.isdigit, os.listdir("/proc")):
    if b"omni_runtime.group" in pathlib.Path("/proc", pid, "cmdline").read_bytes().split(b"\\0"):
        fake_mps_control.ask(pipe, f"fake_attach {{pid}}")
        print(pid)
"""


def attach(pipeline: Pipeline, pods: str) -> None:
    """Attach the groups of these pods to their daemon, as those would that compute on a GPU."""
    pipeline.wait_condition("Routable")
    for pod in pipeline.pod_names(pods):
        pipeline.run_in(pod, _ATTACH, "mps")


def _with_program(container: str) -> dict[str, Any]:
    variables = {"FAKE_MPS_CALLS": CALLS, "PATH": f"{FOLDER}:/opt/omnipipe/bin:/usr/bin:/bin"}
    return {
        "name": container,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "fake-mps", "mountPath": FOLDER}],
    }
