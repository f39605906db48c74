"""A cluster with omnipipe on it, and pipelines there, by the programs that people use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from omni_client import OmniClient

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "scripts" / "cluster" / "cluster.sh"
NODE = ROOT / "scripts" / "cluster" / "node.sh"
SYSTEM_NAMESPACE = "omnipipe-system"
READY_SECONDS = 300
INSTALL_SECONDS = 120
TIMEOUT = f"--timeout={READY_SECONDS}s"
GRPC_PORT, HTTP_PORT = 8443, 8000

SMALLEST = {"OMNIPIPE_STAGE": "light", "OMNIPIPE_FAKE_GPUS": "0"}
"""What a plain run of the tests needs of a node; `make e2e` asks for more."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """A cluster with omnipipe installed.

    Attributes:
        environ: what finds it.
        images: flags of Helm that name the images on it.
    """

    environ: Mapping[str, str]
    images: Sequence[str]

    @property
    def is_ours(self) -> bool:
        """Whether it is the node that node.sh made, whose programs may be stopped."""
        return self.environ["OMNIPIPE_CLUSTER"] == "embedded"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Return what kubectl printed.

        Raises:
            AssertionError: it failed; the message is its own.
        """
        done = subprocess.run(
            ["kubectl", *words],
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS + 10,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def apply(self, *manifests: Manifest, namespace: str = "default") -> None:
        """Apply objects."""
        self.kubectl("-n", namespace, "apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    def install(self, *more: str) -> None:
        """Install or upgrade the chart and wait for the operator."""
        command = ["helm", "upgrade", "--install", "omnipipe", str(ROOT / "charts" / "omnipipe")]
        command += ["--namespace", SYSTEM_NAMESPACE, "--create-namespace", *self.images, *more]
        done = subprocess.run(
            [*command, "--wait", "--timeout", f"{INSTALL_SECONDS}s"],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            operator = ("-n", SYSTEM_NAMESPACE, "logs", "deploy/omnipipe", "--tail=30")
            raise AssertionError(f"{done.stderr}\n{self.kubectl(*operator)}")

    def image(self, name: str) -> str:
        """Return the image that the chart installs for `operator`, `gateway` or `stage`."""
        values = dict(flag.split("=", 1) for flag in self.images if "=" in flag)
        tag = values[f"images.{name}.tag"]
        return f"{values['images.registry']}/omnipipe/{name}:{tag}"

    def tag_image(self, image: str, tag: str) -> str:
        """Give an image of our own node one more name, as a new release would have."""
        name = f"{image.rpartition(':')[0]}:{tag}"
        self._ours("tag", image, name)
        return name

    def stop(self, program: str) -> None:
        """Stop a program of our own node, such as `kubelet`."""
        self._ours("stop", program)

    def start(self, program: str) -> None:
        """Start a program of our own node again."""
        self._ours("start", program)

    def _ours(self, *words: str) -> None:
        assert self.is_ours, "only the node made by node.sh may be tampered with"
        subprocess.run([NODE, *words], check=True, stdout=subprocess.DEVNULL, env=self.environ)

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """A new namespace in which Pod Security refuses what is not restricted."""
        name = f"e2e-{uuid.uuid4().hex[:8]}"
        self.kubectl("create", "namespace", name)
        level = "pod-security.kubernetes.io/enforce=restricted"
        self.kubectl("label", "namespace", name, level)
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")

    @contextmanager
    def pipeline(self, manifest: Manifest, *more: Manifest) -> Iterator[Pipeline]:
        """Apply an OmniPipeline, and before it what it needs, in a namespace of its own; wait
        until it is Ready."""
        with self.applied(manifest, *more) as pipeline:
            pipeline.wait_ready()
            yield pipeline

    @contextmanager
    def applied(self, manifest: Manifest, *more: Manifest) -> Iterator[Pipeline]:
        """The same without the wait."""
        with self.namespace() as namespace:
            pipeline = Pipeline(self, namespace, manifest["metadata"]["name"])
            pipeline.apply(*more, manifest)
            yield pipeline


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An OmniPipeline of a node."""

    node: Node
    namespace: str
    name: str

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the pipeline's namespace; see `Node.kubectl`."""
        return self.node.kubectl("-n", self.namespace, *words, stdin=stdin)

    def apply(self, *manifests: Manifest) -> None:
        """Apply objects."""
        self.node.apply(*manifests, namespace=self.namespace)

    def read(self, *words: str) -> Any:
        """Return what `kubectl get` finds, parsed."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def object(self) -> dict[str, Any]:
        """Return the OmniPipeline as it is."""
        found: dict[str, Any] = self.read("omni", self.name)
        return found

    def pods(self, group: str = "") -> list[dict[str, Any]]:
        """Return the pods of a group, or all of the pipeline, that are not on their way out."""
        selector = f"omnipipe.dev/pipeline={self.name}"
        # Names of Kubernetes have dashes where those of groups have underscores.
        selector += f",omnipipe.dev/group={group.replace('_', '-')}" if group else ""
        found = self.read("pods", "-l", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pod_names(self, group: str = "") -> list[str]:
        """Return the names of `pods`."""
        return [pod["metadata"]["name"] for pod in self.pods(group)]

    def wait_ready(self) -> None:
        """Wait until the wanted revision serves and nothing is under way, gateways included."""
        gateway = f"deployment/{self.name}-gateway"
        self.wait_condition("Ready")
        self.kubectl("rollout", "status", gateway, TIMEOUT)
        for condition in ("Progressing=False", "Ready"):
            self.wait_condition(condition)

    def wait_condition(self, condition: str) -> None:
        """Wait until a condition of the object holds."""
        try:
            self.kubectl("wait", "omni", self.name, f"--for=condition={condition}", TIMEOUT)
        except AssertionError as error:
            error.add_note(self._state())
            raise

    def patch(self, spec: Manifest) -> None:
        """Merge into the object's spec, and wait until the operator has seen it."""
        text = json.dumps({"spec": spec})
        self.kubectl("patch", "omni", self.name, "--type=merge", "-p", text)
        generation = self.object()["metadata"]["generation"]
        self.kubectl(
            "wait", f"omni/{self.name}",
            f"--for=jsonpath={{.status.observedGeneration}}={generation}", "--timeout=60s",
        )  # fmt: skip

    def run_in(self, pod: str, program: str, container: str = "") -> str:
        """Run a Python program in a container, the first one unless named."""
        chosen = ["-c", container] if container else []
        return self.kubectl("exec", "-i", pod, *chosen, "--", "python", "-", stdin=program)

    @contextmanager
    def client(self, timeout_seconds: float = 60.0) -> Iterator[OmniClient]:
        """A client of the gateway Service."""
        with (
            self.reachable() as (address, _),
            OmniClient(address, timeout_seconds=timeout_seconds) as client,
        ):
            yield client

    @contextmanager
    def reachable(self) -> Iterator[tuple[str, str]]:
        """Addresses of the gateway's gRPC and HTTP APIs.

        On our own node it is the Service itself, elsewhere ports that kubectl forwards: those stay
        with one gateway pod.
        """
        if self.node.is_ours:
            found = self.read("service", f"{self.name}-gateway")["spec"]["clusterIP"]
            yield f"{found}:{GRPC_PORT}", f"http://{found}:{HTTP_PORT}"
            return
        with ExitStack() as forwards:
            ports = [forwards.enter_context(self._forward(p)) for p in (GRPC_PORT, HTTP_PORT)]
            yield f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"

    @contextmanager
    def _forward(self, port: int) -> Iterator[int]:
        command = ["kubectl", "-n", self.namespace, "port-forward"]
        with subprocess.Popen(
            [*command, f"service/{self.name}-gateway", f":{port}"],
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
                yield int(found[1])
            finally:
                forward.terminate()

    def _state(self) -> str:
        """Return what a person would look at when it does not become Ready."""
        selector = f"omnipipe.dev/pipeline={self.name}"
        return "\n".join(
            (
                self.kubectl("describe", "omni", self.name),
                self.kubectl("get", "pods", "-o", "wide"),
                self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-6000:],
                self.kubectl("logs", "--selector", selector, "--prefix", "--tail=15")[-6000:],
            )
        )


def example(path: str) -> Manifest:
    """Return the manifest of an example with one object."""
    manifest: Manifest = yaml.safe_load((ROOT / path).read_text())
    return manifest


def merged(base: Manifest, patch: Manifest) -> Manifest:
    """Return a manifest with the mappings of a patch merged into it."""
    found = dict(base)
    for key, value in patch.items():
        old = found.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = merged(old, value)
        found[key] = value
    return found


@contextmanager
def installed_node() -> Iterator[Node]:
    """A cluster with the images built and the chart installed; many minutes when all is new.

    A node that was not there before is gone afterwards. With OMNIPIPE_E2E_AS_IS=1 one that is there
    keeps its images.
    """
    environ = {**SMALLEST, **os.environ, "OMNIPIPE_PYTHON": sys.executable}
    was_there = _is_up(environ)
    began = time.monotonic()
    if not (was_there and os.environ.get("OMNIPIPE_E2E_AS_IS") == "1"):
        subprocess.run([CLUSTER, "up"], check=True, env=environ)
    try:
        told = _bash(f"{_lines(environ)}\nenv -0", environ)
        found = dict(line.split("=", 1) for line in told.split("\0") if "=" in line)
        node = Node(found, found["OMNIPIPE_IMAGES"].split())
        node.install()
        print(f"\ncluster with omnipipe: {time.monotonic() - began:.0f} s")
        yield node
    finally:
        if not was_there:
            subprocess.run([CLUSTER, "down"], check=True, env=environ)


def _is_up(environ: Mapping[str, str]) -> bool:
    return subprocess.run([CLUSTER, "env"], env=environ, capture_output=True).returncode == 0


def _lines(environ: Mapping[str, str]) -> str:
    done = subprocess.run([CLUSTER, "env"], env=environ, check=True, capture_output=True, text=True)
    return done.stdout


def _bash(script: str, environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euc", script], env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout
