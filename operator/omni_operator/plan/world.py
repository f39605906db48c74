"""What one decision is made of, and what it gives: the seam between pure planning and the
controller that reads and writes the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from omni_operator.api.pipeline import OmniGroupStatus
from omni_operator.api.status import OmniPipelineStatus
from omni_operator.plan.capabilities import Capabilities
from omni_operator.render.manifest import Manifest
from omni_operator.render.view import Release
from omni_operator.resolution import Profiles


class ObjectId(NamedTuple):
    """An object of the pipeline's namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class PodTraffic:
    """What all gateways that answered say of one pod.

    Attributes:
        routable: whether every one of them can route to all processes of the pod.
        in_flight: unfinished requests that need it, all gateways together.
        draining: whether it told them that it takes no new requests.
        revision: revision it registered with.
    """

    routable: bool
    in_flight: int
    draining: bool = False
    revision: str = ""


@dataclass(frozen=True, slots=True)
class PodTold:
    """What a pod says of itself; null where it says nothing.

    Attributes:
        mps_attached: processes that are attached to its MPS daemon.
        downloaded: bytes of the checkpoint that are on its volume, and how many there will be.
    """

    mps_attached: int | None = None
    downloaded: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class GatewaysSeen:
    """What gateways say of the pods they know.

    Attributes:
        pods: by the pod's IP address; a pod that none knows is absent.
        asked, answered: gateways. What they say is only whole when all answered.
    """

    pods: Mapping[str, PodTraffic]
    asked: int
    answered: int

    @property
    def whole(self) -> bool:
        """Whether no gateway may hold requests that are not counted here."""
        return self.answered > 0 and self.answered == self.asked


@dataclass(frozen=True, slots=True)
class Observed:
    """Live state of one pipeline.

    Attributes:
        objects: owned objects as the API server has them, without managedFields.
        pods: pods of the pipeline, stages and gateways: metadata, spec.nodeName and status.
        profiles: text of the profile ConfigMaps that exist.
        gateways: null while no gateway answers: nothing is drained and no gate is cleared then.
        told: what pods that were asked say of themselves, by name.
    """

    objects: Mapping[ObjectId, Manifest] = field(default_factory=dict)
    pods: tuple[Manifest, ...] = ()
    profiles: Profiles = field(default_factory=dict)
    gateways: GatewaysSeen | None = None
    told: Mapping[str, PodTold] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """What is the same for every pipeline.

    Attributes:
        now: Unix seconds.
    """

    cluster: Capabilities
    release: Release
    now: float


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a manifest, taking over its fields from whoever changed them.

    Attributes:
        drifted: fields that someone else changed; empty for a wanted change.
    """

    manifest: Manifest
    drifted: tuple[str, ...] = ()

    @property
    def id(self) -> ObjectId:
        """The object."""
        return ObjectId(self.manifest["kind"], self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object that nothing needs any more, and only the very one that was seen."""

    id: ObjectId
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class SetRoutable:
    """Set the readiness gate of a pod."""

    pod: str
    uid: str
    value: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Annotate:
    """Set annotations of a pod; null removes one."""

    pod: str
    uid: str
    annotations: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Tell a pod to take no new requests (`POST /drain`).

    Attributes:
        ports: health port of each of its containers.
    """

    pod: str
    uid: str
    ip: str
    ports: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class CancelDrain:
    """Tell a pod to take requests again (`POST /resume`)."""

    pod: str
    uid: str
    ip: str
    ports: tuple[int, ...]


Action = Apply | Delete | SetRoutable | Annotate | StartDrain | CancelDrain


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for `kubectl describe`.

    Attributes:
        type: `Normal` or `Warning`.
    """

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, in this order, and what to say.

    Attributes:
        group_status: status of each OmniGroup, by name.
        requeue_seconds: when to look again although nothing was reported; null for never.
        facts: of use to whoever asks for a plan: names and reasons, as JSON values.
    """

    actions: tuple[Action, ...]
    status: OmniPipelineStatus
    events: tuple[Event, ...] = ()
    group_status: Mapping[str, OmniGroupStatus] = field(default_factory=dict)
    requeue_seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
