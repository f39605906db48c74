"""What stages and gateways say to each other, one class per message.

These are the objects the rest of the code handles; how they look as bytes is the codec's business.
On a connection inside one process they pass by reference, so everything in them is read-only once
posted. Arrays in a tree or a column are numpy arrays, torch tensors or `omni_wire.tensor.Tensor`:
connections to other processes deliver the last, and `omni_wire.trees.to_numpy` or
`omni_wire.torch_end.to_torch` turn a whole tree into what a stage computes with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from omni_wire.errors import ErrorInfo
from omni_wire.frame_rows import Row as Row
from omni_wire.frame_rows import Rows as Rows
from omni_wire.identity import Bindings, Endpoint, RequestKey
from omni_wire.tensor import ArrayLike

# Data of a request: nested containers with arrays as leaves. Keys are text.
Tree: TypeAlias = (
    "bool | int | float | str | bytes | ArrayLike | Sequence[Tree] | Mapping[str, Tree] | None"
)

_EMPTY_TREE: Mapping[str, Tree] = MappingProxyType({})
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RequestView:
    """The request as the client sent it; a stage that no longer needs the media drops `inputs`.

    Attributes:
        inputs: what to process (messages, media) by name.
        params: how to process it (sampling, streaming, talker settings) by name.
        metadata: what it is about (wanted modalities, trace context) by name.
    """

    inputs: Mapping[str, Tree] = field(default_factory=lambda: _EMPTY_TREE)
    params: Mapping[str, Tree] = field(default_factory=lambda: _EMPTY_TREE)
    metadata: Mapping[str, Tree] = field(default_factory=lambda: _EMPTY_TREE)


@dataclass(frozen=True, slots=True)
class Open:
    """First message about a request on an edge when something other than its payload comes first.

    A stage that starts on chunks needs the bindings before any payload: whoever sends them posts
    this before the first chunk or done of a request, unless the request's payload went ahead.

    Attributes:
        source: instance that sends.
        bindings: instance of every stage of this request.
        deadline: seconds on this process's `time.monotonic()`, None for none. The wire carries the
            time left, so clocks need not agree.
        request: the request itself, None where the sender does not have it.
    """

    key: RequestKey
    source: str
    bindings: Bindings
    deadline: float | None = None
    request: RequestView | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """A stage's whole result for one request, input of the next stage.

    Attributes:
        source: instance that sends, `GATEWAY_SOURCE` for the first payload.
        data: tree of values and arrays.
        request: the request itself, None where it was dropped.
        bindings: instance of every stage of this request.
        deadline: seconds on this process's `time.monotonic()`, None for none.
    """

    key: RequestKey
    source: str
    data: Tree
    request: RequestView | None = None
    bindings: Bindings = field(default_factory=lambda: MappingProxyType({}))
    deadline: float | None = None


# Frames are not frozen, though nobody changes one: freezing doubles what making one costs, and each
# step makes one at either end.
@dataclass(slots=True)
class StepFrame:
    """Everything one scheduler step sends over one edge, whatever the number of requests.

    Attributes:
        source: instance that sends.
        step: number of the scheduler step, rising.
        rows: the requests that produced something, each at most once, in the order of the columns;
            a tuple of `Row`, or `Rows`, which is cheaper and what arrives from other processes.
        columns: arrays by name; the leading dimension of each is len(rows).
        meta: one small tree for the whole frame.
    """

    source: str
    step: int
    rows: Sequence[Row]
    columns: Mapping[str, ArrayLike]
    meta: Tree = None


@dataclass(frozen=True, slots=True)
class StreamDone:
    """No more chunks of this request from this source; `chunks` were sent before it."""

    key: RequestKey
    source: str
    chunks: int


@dataclass(frozen=True, slots=True)
class StreamError:
    """This request failed at the source; nothing more comes from it."""

    key: RequestKey
    source: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop working on a request and forget it; everything about it that comes later is dropped."""

    key: RequestKey
    reason: str


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a group on a control stream.

    Attributes:
        wire_version: newest version the group speaks.
        config_hash: hash of the resolved configuration it runs.
        revision: revision its pods belong to; empty outside a cluster.
        group: name of the process group.
        incarnation: number drawn by the group process when it started.
        address: gRPC target at which other groups reach its stages.
        instances: the stage instances it hosts.
        labels: facts for people (node, pod, GPU), by name.
    """

    wire_version: int
    config_hash: str
    revision: str
    group: str
    incarnation: int
    address: str
    instances: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The hosted instances as endpoints."""
        return tuple(Endpoint(name, self.address, self.incarnation) for name in self.instances)


@dataclass(frozen=True, slots=True)
class Ready:
    """An instance became able to take requests, or stopped being so.

    Attributes:
        reason: why not, for people; empty when ready.
    """

    instance: str
    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """Load of an instance now.

    Attributes:
        queued: requests that wait for their first step.
        in_flight: requests held, waiting ones included.
        heartbeat: counter that rises with every scheduler step and idle tick.
        heartbeat_age_seconds: time since it last rose.
    """

    instance: str
    queued: int
    in_flight: int
    heartbeat: int
    heartbeat_age_seconds: float


@dataclass(slots=True)
class OutputFrame:
    """A terminal stage's output of one step for the clients.

    Attributes:
        source, step, rows, columns, meta: as in StepFrame.
        modality: `text`, `audio` or another word of the pipeline.
    """

    source: str
    step: int
    modality: str
    rows: Sequence[Row]
    columns: Mapping[str, ArrayLike]
    meta: Tree = None


@dataclass(frozen=True, slots=True)
class Completed:
    """A terminal stage finished a request."""

    key: RequestKey
    source: str
    result: Tree


@dataclass(frozen=True, slots=True)
class Failed:
    """A stage failed a request."""

    key: RequestKey
    source: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class AbortAck:
    """Every instance of the group has let go of an aborted request."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Draining:
    """The group takes no new requests and finishes those it has; empty `instances` means all."""

    instances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to Hello.

    Attributes:
        gateway: incarnation id of the gateway.
        wire_version: version both ends use from here on.
        lease_seconds: how long the gateway may be out of reach before its requests are aborted.
    """

    gateway: str
    wire_version: int
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Submit:
    """Start a request at an entry instance of the group."""

    instance: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new requests; finish those bound within `seconds`, then abort the rest."""

    seconds: float


# Asked for every message: a union written in place would be built anew each time.
FRAMES = (StepFrame, OutputFrame)

EdgeMessage: TypeAlias = Open | Payload | StepFrame | StreamDone | StreamError | Abort
GroupMessage: TypeAlias = (
    OutputFrame | Completed | Failed | Abort | AbortAck | Ready | Stats | Draining
)
GatewayMessage: TypeAlias = Submit | Abort | Drain
Message: TypeAlias = EdgeMessage | GroupMessage | GatewayMessage


def keys_of(message: Message) -> tuple[RequestKey, ...]:
    """The requests a message is about: one per row of a frame, none for a process itself."""
    if isinstance(message, FRAMES):
        rows = message.rows
        return rows.keys if type(rows) is Rows else Rows.of(rows).keys
    if isinstance(message, Submit):
        return (message.payload.key,)
    if isinstance(message, Ready | Stats | Draining | Drain):
        return ()
    return (message.key,)
