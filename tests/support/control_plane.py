"""A real Kubernetes API for tests, from whatever this machine has.

Chosen in this order, and said at the head of a test run: the cluster of `KUBECONFIG`; a kind
cluster where Docker works; else etcd, kube-apiserver, kube-controller-manager and kube-scheduler as
plain processes, built once from Go modules and kept outside the tree. Nodes and their kubelet are
played by `tests.support.kubelet` in every case, so no image is ever pulled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster_programs import (
    BUILD,
    PROGRAMS,
    has_programs,
    kind_works,
    program_directory,
)
from tests.support.pki import Authority, write_kubeconfig, write_service_account_key
from tests.support.ports import free_port

START_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A reachable API server.

    Attributes:
        kubeconfig: file with an administrator's credentials.
    """

    kubeconfig: Path


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """An API server for as long as the context lasts; `directory` is for what it writes."""
    given = os.environ.get("KUBECONFIG")
    if given:
        yield Cluster(Path(given))
    elif not has_programs() and kind_works():
        with _kind_cluster(directory) as made:
            yield made
    else:
        with control_plane(directory) as made:
            yield made


def _programs() -> Path:
    directory = program_directory()
    if not has_programs():
        subprocess.run([BUILD, directory, *PROGRAMS], check=True, stdout=subprocess.DEVNULL)
    return directory


@contextlib.contextmanager
def _kind_cluster(directory: Path) -> Iterator[Cluster]:
    name, kubeconfig = f"omnipipe-{os.getpid()}", directory / "kubeconfig"
    command = ["kind", "create", "cluster", "--name", name, "--kubeconfig", str(kubeconfig)]
    subprocess.run([*command, "--wait", "120s"], check=True)
    try:
        yield Cluster(kubeconfig)
    finally:
        subprocess.run(["kind", "delete", "cluster", "--name", name], check=False)


@contextlib.contextmanager
def control_plane(directory: Path, *, controllers: bool = True) -> Iterator[Cluster]:
    """An API server as plain processes for as long as the context lasts.

    Args:
        directory: for what it writes.
        controllers: whether anything happens to objects besides being stored.
    """
    programs = _programs()
    etcd, peer, api = (free_port() for _ in range(3))
    url = f"https://127.0.0.1:{api}"
    authority = Authority(directory)
    authority.issue("apiserver", "kube-apiserver", servers=("127.0.0.1", "localhost", "10.96.0.1"))
    authority.issue("admin", "admin", organization="system:masters")
    kubeconfig = write_kubeconfig(directory, authority, "admin", url)
    write_service_account_key(directory)
    with contextlib.ExitStack() as running:

        def start(name: str, arguments: Sequence[str]) -> None:
            running.enter_context(_process(programs / name, arguments, directory))

        start("etcd", _etcd_arguments(directory, etcd, peer))
        start("kube-apiserver", _apiserver_arguments(directory, etcd, api))
        _wait_until_ready(url, directory)
        if controllers:
            start("kube-controller-manager", _manager_arguments(directory, kubeconfig))
            start("kube-scheduler", _scheduler_arguments(kubeconfig))
        yield Cluster(kubeconfig)


def _etcd_arguments(directory: Path, port: int, peer: int) -> list[str]:
    client = f"http://127.0.0.1:{port}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def _apiserver_arguments(directory: Path, etcd: int, port: int) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={directory}/apiserver.crt",
        f"--tls-private-key-file={directory}/apiserver.key",
        f"--client-ca-file={directory}/ca.crt",
        f"--service-account-key-file={directory}/sa.pub",
        f"--service-account-signing-key-file={directory}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
    ]


def _manager_arguments(directory: Path, kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={directory}/sa.key",
        f"--root-ca-file={directory}/ca.crt",
        "--leader-elect=false",
        "--use-service-account-credentials=false",
        "--secure-port=0",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--concurrent-gc-syncs=4",
    ]


def _scheduler_arguments(kubeconfig: Path) -> list[str]:
    return [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]


@contextlib.contextmanager
def _process(program: Path, arguments: Sequence[str], directory: Path) -> Iterator[None]:
    with (directory / f"{program.name}.log").open("w") as log:
        process = subprocess.Popen(
            [*_dies_with_parent(), program, *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _dies_with_parent() -> list[str]:
    """Words that let the kernel end a program whose test session was killed.

    Not `preexec_fn`: it runs Python in the forked child, where libraries that a test session has
    loaded run their hooks and may crash.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _wait_until_ready(url: str, directory: Path) -> None:
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "admin.crt", directory / "admin.key")
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{url}/readyz", context=context, timeout=5),
        ):
            return
        time.sleep(0.1)
    said = (directory / "kube-apiserver.log").read_text()[-2000:]
    raise RuntimeError(f"kube-apiserver is not ready after {START_SECONDS:.0f} s:\n{said}")
