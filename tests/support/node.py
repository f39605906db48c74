"""A cluster with omnipipe on it, and pipelines there, by the programs that people use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_client import OmniClient

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "scripts" / "cluster" / "cluster.sh"
READY_SECONDS = 120
GRPC_PORT = 8443


@dataclass(frozen=True, slots=True)
class Node:
    """A cluster with omnipipe installed; `environ` is what finds it."""

    environ: dict[str, str]

    def kubectl(self, *words: str, timeout_seconds: float = READY_SECONDS + 10) -> str:
        """Return what kubectl printed.

        Raises:
            AssertionError: it failed; the message is its own.
        """
        done = subprocess.run(
            ["kubectl", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    @contextmanager
    def pipeline(self, manifest: str) -> Iterator[Pipeline]:
        """Apply a manifest in a new namespace and wait until it is Ready."""
        namespace = f"e2e-{uuid.uuid4().hex[:8]}"
        self.kubectl("create", "namespace", namespace)
        try:
            began = time.monotonic()
            applied = self.kubectl(
                "-n", namespace, "apply", "-f", str(ROOT / manifest), "-o", "name"
            )
            name = applied.strip().split("/")[-1]
            pipeline = Pipeline(self, namespace, name)
            pipeline.wait_ready()
            print(f"\n{name}: Ready {time.monotonic() - began:.1f} s after kubectl apply")
            yield pipeline
        finally:
            self.kubectl("delete", "namespace", namespace, "--wait=false")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An OmniPipeline of a node."""

    node: Node
    namespace: str
    name: str

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the pipeline's namespace; see `Node.kubectl`."""
        return self.node.kubectl("-n", self.namespace, *words)

    def object(self) -> dict[str, Any]:
        """Return the OmniPipeline as it is."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "omni", self.name, "-o", "json"))
        return found

    def pods(self, group: str) -> list[str]:
        """Return the names of a group's pods that are not on their way out."""
        selector = f"omnipipe.dev/pipeline={self.name},omnipipe.dev/group={group}"
        listed = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))
        pods = [pod["metadata"] for pod in listed["items"]]
        return [pod["name"] for pod in pods if "deletionTimestamp" not in pod]

    def wait_ready(self) -> None:
        """Wait until the wanted revision serves and nothing is under way."""
        for condition in ("Ready", "Progressing=False"):
            self.kubectl(
                "wait", f"omni/{self.name}", f"--for=condition={condition}",
                f"--timeout={READY_SECONDS}s",
            )  # fmt: skip

    def patch(self, spec: dict[str, Any]) -> None:
        """Merge into the object's spec, and wait until the operator has seen it."""
        text = json.dumps({"spec": spec})
        self.kubectl("patch", "omni", self.name, "--type=merge", "-p", text)
        generation = self.object()["metadata"]["generation"]
        self.kubectl(
            "wait", f"omni/{self.name}",
            f"--for=jsonpath={{.status.observedGeneration}}={generation}", "--timeout=30s",
        )  # fmt: skip

    @contextmanager
    def client(self) -> Iterator[OmniClient]:
        """A client of the gateway Service, through a port forwarded by kubectl."""
        command = ["kubectl", "-n", self.namespace, "port-forward"]
        with subprocess.Popen(
            [*command, f"service/{self.name}-gateway", f":{GRPC_PORT}"],
            env=self.node.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as forward:
            try:
                assert forward.stdout is not None
                line = forward.stdout.readline()
                found = re.search(r"127\.0\.0\.1:(\d+)", line)
                assert found is not None, line
                with OmniClient(f"127.0.0.1:{found[1]}", timeout_seconds=60) as client:
                    yield client
            finally:
                forward.terminate()


def installed_node() -> Node:
    """Return a cluster with the images built and the chart installed; minutes when both are new."""
    subprocess.run([CLUSTER, "up"], check=True)
    told = subprocess.run([CLUSTER, "env"], check=True, capture_output=True, text=True).stdout
    shown = _bash(f'{told}\nprintf "%s\\n%s\\n%s" "$KUBECONFIG" "$PATH" "$OMNIPIPE_IMAGES"')
    kubeconfig, path, images = shown.split("\n")
    node = Node({**os.environ, "KUBECONFIG": kubeconfig, "PATH": path})
    _install(node, images.split())
    return node


def _install(node: Node, images: Sequence[str]) -> None:
    command = ["helm", "upgrade", "--install", "omnipipe", str(ROOT / "charts" / "omnipipe")]
    command += ["--namespace", "omnipipe-system", "--create-namespace", *images]
    done = subprocess.run(
        [*command, "--wait", "--timeout", f"{READY_SECONDS}s"],
        env=node.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _bash(script: str) -> str:
    return subprocess.run(
        ["bash", "-euc", script], check=True, capture_output=True, text=True
    ).stdout
