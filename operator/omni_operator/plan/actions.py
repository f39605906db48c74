"""What a step of a rollout may ask for: a closed union, in words of pods and revisions.

`decision` turns these into writes of Kubernetes objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from omni_operator.plan.observed import KnownRevision


@dataclass(frozen=True, slots=True)
class Scale:
    """Set the replicas of one revision of a pod shape, creating its Deployment when missing."""

    shape: str
    revision: str
    replicas: int


@dataclass(frozen=True, slots=True)
class DeleteRevision:
    """Delete the Deployment of a revision that the history no longer keeps; it has no pods."""

    workload: str
    shape: str
    revision: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Let gateways bind no new requests to a pod, and mark it as the first to go."""

    pod: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Mark a pod whose drain is over as the very first to go, before others that still finish."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class CancelDrain:
    """Take a pod back into service: it is wanted after all."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class SetReadinessGate:
    """Set the condition that says whether gateways can route to a pod."""

    pod: str
    uid: str
    routable: bool
    reason: str


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """Tell gateways which revisions there are, oldest first, and keep it for their next start."""

    revisions: tuple[KnownRevision, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after a while, even if nothing is reported until then."""

    seconds: float
    reason: str


RolloutAction = (
    Scale | DeleteRevision | Drain | Release | CancelDrain | SetReadinessGate | SetRoutes | Wait
)
