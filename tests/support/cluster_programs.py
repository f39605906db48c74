"""Which Kubernetes API this machine can have; standard library only, for it is asked before any
test is collected."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from scripts.packages import missing_packages

BUILD = Path(__file__).resolve().parents[2] / "scripts" / "cluster" / "build.sh"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
TOOLS = ("helm", "kubectl", "kubeconform")


def program_directory() -> Path:
    """Where the control plane's programs are, or will be built."""
    given = os.environ.get("OMNIPIPE_CLUSTER_BIN")
    if given:
        return Path(given)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "omnipipe" / "bin"


def build_program(name: str) -> Path:
    """Return one of the programs, built when it is not there yet."""
    program = program_directory() / name
    if not program.exists():
        words = (str(BUILD), str(program_directory()), name)
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return program


def build_programs() -> None:
    """Build what is not there yet of everything that tests with an API server run.

    Minutes where nothing is cached, which no time limit of a test allows for.
    """
    if shutil.which("go"):
        own_plane = not os.environ.get("KUBECONFIG") and (has_programs() or not kind_works())
        for name in (*(PROGRAMS if own_plane else ()), *TOOLS):
            build_program(name)


def why_no_cluster() -> str | None:
    """Return why no API server can be had here, None when one can."""
    if os.environ.get("KUBECONFIG") or has_programs() or shutil.which("go") or kind_works():
        return None
    return f"needs Go, or programs in {program_directory()}, or KUBECONFIG, to have an API server"


def which_cluster() -> str:
    """Return which Kubernetes API tests on this machine use, for people."""
    given = os.environ.get("KUBECONFIG")
    if given:
        return f"the cluster of KUBECONFIG {given}"
    if not has_programs() and kind_works():
        return "a kind cluster"
    return why_no_cluster() or f"a control plane of {program_directory()}"


def has_programs() -> bool:
    """Whether the control plane's programs were built before."""
    return all((program_directory() / name).exists() for name in PROGRAMS)


@cache
def kind_works() -> bool:
    """Whether kind can make a cluster here."""
    if not (shutil.which("kind") and shutil.which("docker")):
        return False
    asked = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=20)
    return asked.returncode == 0


def why_no_node() -> str | None:
    """Return why no node that runs containers can be had here, None when one can."""
    if os.environ.get("KUBECONFIG") or kind_works():
        return None
    if os.geteuid() != 0:
        return "needs root for a node of its own, or kind, or KUBECONFIG"
    missing = missing_packages(["node"])
    if missing:
        return f"needs {', '.join(missing)}: `scripts/cluster/cluster.sh prepare`, as root"
    return why_no_cluster()
