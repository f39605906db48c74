"""What `omni doctor` looks at on this machine: packages, GPUs, ports, runs and the cluster.

Every check reads and changes nothing. It tells what it found; what is wrong comes with the next
command to give.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from omni_client import OmniClient, Pipeline
from omni_wire.errors import ServiceError

EXTRAS = {
    "client": ("grpcio", "numpy"),
    "cli": ("typer", "rich"),
    "gateway": ("fastapi", "uvicorn"),
    "operator": ("kopf", "kubernetes"),
    "runtime": ("torch", "sglang", "transformers"),
}
"""Packages that tell whether an extra is installed."""
CUSTOM_RESOURCES = ("omnipipelines.omnipipe.dev", "omnigroups.omnipipe.dev")
OPERATOR_LABEL = "app.kubernetes.io/name=omnipipe-operator"
PROGRAM_SECONDS = 10.0
ANSWER_SECONDS = 5.0


class Verdict(StrEnum):
    """How a finding is meant."""

    OK = "ok"
    ABSENT = "absent"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: such as `GPUs`.
        next_command: what to do about it; empty where nothing needs doing.
    """

    area: str
    verdict: Verdict
    text: str
    next_command: str = ""


def package_findings() -> Iterator[Finding]:
    """Tell which extras are installed, and in which versions."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("packages", Verdict.OK, f"omnipipe {_version('omnipipe')}, Python {python}")
    for extra, packages in EXTRAS.items():
        found = {name: _version(name) for name in packages}
        missing = [name for name, installed in found.items() if installed is None]
        if missing:
            text = f"{extra}: {', '.join(missing)} not installed"
            command = f"pip install 'omnipipe[{extra}]'"
            yield Finding("packages", Verdict.ABSENT, text, command)
        else:
            texts = ", ".join(f"{name} {installed}" for name, installed in found.items())
            yield Finding("packages", Verdict.OK, f"{extra}: {texts}")


def gpu_findings() -> Iterator[Finding]:
    """Tell which NVIDIA GPUs there are."""
    if shutil.which("nvidia-smi") is None:
        yield Finding("GPUs", Verdict.ABSENT, "none: there is no nvidia-smi; stages run on the CPU")
        return
    query = "--query-gpu=index,name,memory.used,memory.total,driver_version"
    answer = _ask(["nvidia-smi", query, "--format=csv,noheader"])
    if answer.code:
        yield Finding("GPUs", Verdict.WRONG, f"nvidia-smi fails: {answer.last_line}", "nvidia-smi")
        return
    for card in answer.output.splitlines():
        index, name, used, total, driver = (part.strip() for part in card.split(","))
        text = f"{index}: {name}, {used} of {total} used, driver {driver}"
        yield Finding("GPUs", Verdict.OK, text)


def run_findings(base: Path) -> Iterator[Finding]:
    """Tell which pipelines run on this machine, and what keeps one from being ready.

    Args:
        base: directory of runs, `endpoints.base_path`.
    """
    runs = [path for path in sorted(base.glob("*/lock")) if _is_held(path)]
    if not runs:
        yield Finding("pipelines", Verdict.ABSENT, "none runs here", "omni up --config FILE")
    for lock in runs:
        yield from _run_findings(lock.parent)


def port_findings(ports: Sequence[int], runs: bool) -> Iterator[Finding]:
    """Tell whether the ports `omni up` takes are free.

    Args:
        runs: whether a pipeline runs here, which then has them.
    """
    for port in ports:
        if _is_free(port):
            yield Finding("ports", Verdict.OK, f"{port} is free")
        elif runs:
            yield Finding("ports", Verdict.OK, f"{port} is in use while a pipeline runs")
        else:
            text = f"{port} is taken by another program"
            yield Finding("ports", Verdict.WRONG, text, "omni up --port 0 --http-port 0 ...")


def cluster_findings() -> Iterator[Finding]:
    """Tell whether a cluster can be reached, and what of omnipipe is in it."""
    if shutil.which("kubectl") is None:
        yield Finding("cluster", Verdict.ABSENT, "there is no kubectl")
        return
    context = _ask(["kubectl", "config", "current-context"])
    if context.code:
        yield Finding("cluster", Verdict.ABSENT, "kubectl has no current context")
        return
    limit = f"--request-timeout={ANSWER_SECONDS:g}s"
    names = _ask(["kubectl", "get", "crd", "-o", "name", limit])
    if names.code:
        text = f"{context.last_line} does not answer: {names.last_line}"
        yield Finding("cluster", Verdict.WRONG, text, "kubectl cluster-info")
        return
    yield Finding("cluster", Verdict.OK, f"context {context.last_line} answers")
    missing = [name for name in CUSTOM_RESOURCES if f"/{name}\n" not in names.output]
    if missing:
        text = f"{', '.join(missing)} not installed"
        yield Finding("cluster", Verdict.ABSENT, text, "helm install omnipipe charts/omnipipe")
        return
    yield _operator_finding(limit)


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    output: str
    last_line: str


def _operator_finding(limit: str) -> Finding:
    columns = "jsonpath={range .items[*]}{.metadata.name} {.status.readyReplicas}{'\\n'}{end}"
    words = ["deployments", "-A", "-l", OPERATOR_LABEL, "-o", columns, limit]
    found = _ask(["kubectl", "get", *words])
    if found.code:
        text = f"the operator cannot be looked up: {found.last_line}"
        return Finding("cluster", Verdict.WRONG, text, "kubectl auth whoami")
    deployments = [line.split() for line in found.output.splitlines() if line.strip()]
    if not deployments:
        command = "helm install omnipipe charts/omnipipe"
        return Finding("cluster", Verdict.WRONG, "the operator is not installed", command)
    if not any(len(fields) > 1 and fields[1] != "0" for fields in deployments):
        command = f"kubectl get pods -A -l {OPERATOR_LABEL}"
        return Finding("cluster", Verdict.WRONG, "the operator is not ready", command)
    return Finding("cluster", Verdict.OK, "the operator is ready")


def _run_findings(directory: Path) -> Iterator[Finding]:
    gateway = f"unix:{directory}/up/gateway.sock"
    try:
        with OmniClient(gateway, timeout_seconds=ANSWER_SECONDS) as client:
            pipeline = client.pipeline()
    except ServiceError as error:
        text = f"{directory.name}: its gateway does not answer: {error}"
        yield Finding("pipelines", Verdict.WRONG, text, "read the log of its `omni up`")
        return
    yield _pipeline_finding(directory.name, pipeline)


def _pipeline_finding(run: str, pipeline: Pipeline) -> Finding:
    waiting = [
        f"{stage.name} ({'; '.join(one.reason for one in stage.instances) or 'no instance'})"
        for stage in pipeline.stages
        if not any(one.ready for one in stage.instances)
    ]
    if pipeline.ready:
        text = f"{run}: {pipeline.name} is ready, {len(pipeline.stages)} stages"
        return Finding("pipelines", Verdict.OK, text)
    text = f"{run}: {pipeline.name} waits for {', '.join(waiting) or 'its groups'}"
    return Finding("pipelines", Verdict.WRONG, text, "read the log of its `omni up`")


def _is_held(lock: Path) -> bool:
    """Whether the launcher of a run is there: it holds the lock for as long as it lives."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # another user's, or gone by now
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As a server binds: what only lingers after a close is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _ask(command: Sequence[str]) -> _Answer:
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return _Answer(1, "", f"no answer within {PROGRAM_SECONDS:g} s")
    lines = (ended.stderr if ended.returncode else ended.stdout).strip().splitlines()
    return _Answer(ended.returncode, ended.stdout, lines[-1] if lines else "")
