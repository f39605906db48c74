"""What a stage holds of one request while it is alive there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from omni_runtime.fan_in import FanIn, FanInRule
from omni_runtime.stage_events import Peer
from omni_wire.edge import Release
from omni_wire.identity import Bindings, RequestKey
from omni_wire.messages import RequestView, StreamDone, Tree


class StageRequest:
    """One live request of a stage.

    Attributes:
        bindings: instance of every stage of this request.
        deadline: monotonic seconds, None for none.
        fan_in: payloads awaited before the request is given to the scheduler.
        view: the request as it came with the merged payload, before that as a source of chunks
            introduced it.
        admitted: the merged payload has gone to the scheduler.
        known: the scheduler has heard of the request in any way and owes its end.
        latched: stream ends that came before the payload, on a stage that wants the payload first.
        received: chunks that came, per source.
        ended: sources whose stream has ended.
        sent: chunks sent, per peer.
        peers: everybody something has been sent to.
        stalls: peers that have no room for this request.
        input_at: when input came last, monotonic seconds.
        opened_at: when the first message came, monotonic seconds.
        first_output_at: when the first row left, None before.
        timeline: entries of the stages before this one.
    """

    __slots__ = (
        "_chunk_releases",
        "_payload_releases",
        "admitted",
        "bindings",
        "deadline",
        "ended",
        "fan_in",
        "first_output_at",
        "input_at",
        "key",
        "known",
        "latched",
        "opened_at",
        "peers",
        "received",
        "sent",
        "stalls",
        "timeline",
        "view",
    )

    def __init__(
        self,
        key: RequestKey,
        bindings: Bindings,
        deadline: float | None,
        rule: FanInRule,
        now: float,
    ) -> None:
        self.key = key
        self.bindings = bindings
        self.deadline = deadline
        self.fan_in = FanIn(rule)
        self.input_at = now
        self.opened_at = now
        self.first_output_at: float | None = None
        self.timeline: dict[str, Tree] = {}
        self.view: RequestView | None = None
        self.admitted = False
        self.known = False
        self.latched: list[StreamDone] = []
        self.received: dict[str, int] = {}
        self.ended: set[str] = set()
        self.sent: dict[Peer, int] = {}
        self.peers: dict[Peer, None] = {}
        self.stalls: set[Peer] = set()
        self._payload_releases: list[Release] = []
        self._chunk_releases: dict[str, deque[Release]] = {}

    @property
    def awaits_input(self) -> bool:
        """Whether an upstream stage still owes something that this stage knows of."""
        return not self.admitted or not self.received.keys() <= self.ended

    def hold_payload(self, release: Release) -> None:
        """Keep the credit of a payload until the scheduler admits the request."""
        self._payload_releases.append(release)

    def hold_chunk(self, source: str, release: Release) -> None:
        """Keep the credit of a chunk until the scheduler has used it, and count it as received."""
        self.received[source] = self.received.get(source, 0) + 1
        releases = self._chunk_releases.get(source)
        if releases is None:
            releases = self._chunk_releases[source] = deque()
        releases.append(release)

    def payload_taken(self) -> list[Release]:
        """Return the credits of all payloads; they are held no longer."""
        releases, self._payload_releases = self._payload_releases, []
        return releases

    def chunk_taken(self, source: str) -> Release:
        """Return the credit of the oldest chunk of `source`. Raises KeyError or IndexError without
        one.
        """
        return self._chunk_releases[source].popleft()

    def everything_taken(self) -> Iterator[Release]:
        """Yield every credit still held; the request is over."""
        yield from self.payload_taken()
        for releases in self._chunk_releases.values():
            yield from releases
        self._chunk_releases = {}

    def next_chunk_id(self, peer: Peer) -> int:
        """Return the id of the next chunk to a peer: dense from 0."""
        chunk_id = self.sent.get(peer, 0)
        self.sent[peer] = chunk_id + 1
        return chunk_id
