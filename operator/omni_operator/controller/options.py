"""What an operator process is told, once."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from omni_operator.controller.lease import LeaseOptions
from omni_operator.controller.queue import Backoff
from omni_operator.render.view import Release


def own_identity() -> str:
    """Return a name of this process that no other has: pod name and process id."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Options:
    """How an operator runs.

    Attributes:
        namespaces: those it looks after; all when empty.
        kubeconfig: file with credentials; null for the pod's service account.
        service_account: account in the Lease's namespace that the operator's own Secret and Lease
            go with; empty for none.
        workers: pipelines looked at at the same time.
        resync_seconds: each pipeline is looked at at least this often, give or take a tenth.
        audit_seconds: how often the watches are compared with lists.
        discovery_seconds: how often the cluster is asked what it offers.
        stalled_seconds: a turn that takes longer counts as stuck, and the process as not alive.
        health_port, metrics_port: 0 for a free one.
    """

    release: Release
    lease: LeaseOptions
    namespaces: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    service_account: str = ""
    identity: str = field(default_factory=own_identity)
    workers: int = 8
    resync_seconds: float = 600.0
    audit_seconds: float = 300.0
    discovery_seconds: float = 120.0
    profile_seconds: float = 30.0
    stalled_seconds: float = 180.0
    backoff: Backoff = field(default_factory=Backoff)
    health_port: int = 8080
    metrics_port: int = 9090
