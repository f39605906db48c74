"""A Coordinator's state machine with a clock that moves when told and obedient replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from omni_gateway.coordinator.directory import Registration
from omni_gateway.coordinator.events import (
    AbortAcked,
    AbortCompleted,
    AbortRequested,
    ConsumerLeft,
    Dropped,
    Event,
    Finished,
    Instruction,
    OutputArrived,
    Readable,
    Released,
    ReplicaLost,
    ReplicasChanged,
    ReturnCredit,
    SendAbort,
    SendSubmit,
    StageCompleted,
    StageFailed,
    SubmitRefused,
    SubmitSent,
    Submitted,
    TimePassed,
)
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.records import Phase, RequestRecord
from omni_gateway.coordinator.state import CoordinatorState
from omni_gateway.coordinator.streams import Output
from omni_gateway.coordinator.topology import PipelineTopology
from omni_wire.errors import RequestAborted, ServiceError
from omni_wire.errors import StageFailed as StageFailedError
from omni_wire.identity import RequestKey
from omni_wire.messages import RequestView, Tree

GROUPS = {"front": ("prepare", "text"), "thinker": ("think",), "vocoder": ("voice",)}
"""prepare → think → text, and think → voice; text and voice are terminals."""


def wanted(request: RequestView) -> object:
    """Choose the terminals that the request names; both when it names none."""
    return request.metadata.get("terminals", ["text", "voice"])


def speech_topology() -> PipelineTopology:
    """Return a pipeline with two terminals, of which a request may want one."""
    return PipelineTopology(
        entry="prepare",
        terminals=("text", "voice"),
        group_of={stage: group for group, stages in GROUPS.items() for stage in stages},
        sources_of={
            "prepare": frozenset(),
            "think": frozenset({"prepare"}),
            "text": frozenset({"think"}),
            "voice": frozenset({"think"}),
        },
        terminals_hook=wanted,
    )


@dataclass
class World:
    """A state machine under test and everything it asked for.

    Attributes:
        refuse_submits: raise this instead of taking a submission.
        submits: submissions that replicas received.
        aborts: aborts that replicas received and have not acknowledged.
        released: how often each chunk's credit was returned.
        ends: every end of every request.
    """

    options: CoordinatorOptions = field(default_factory=CoordinatorOptions)
    topology: PipelineTopology = field(default_factory=speech_topology)
    now: float = 1000.0
    refuse_submits: ServiceError | None = None
    hold_submits: bool = False
    submits: list[SendSubmit] = field(default_factory=list)
    aborts: list[SendAbort] = field(default_factory=list)
    log: list[Instruction] = field(default_factory=list)
    released: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    ends: dict[str, list[Phase]] = field(default_factory=lambda: defaultdict(list))
    dropped: list[int] = field(default_factory=list)
    sent_chunks: int = 0
    front: int = 0
    thinker: int = 0
    vocoder: int = 0
    _next_incarnation: int = 100

    def __post_init__(self) -> None:
        self.state = CoordinatorState(self.topology, self.options, "0123456789ab")

    def up(self, group: str, revision: str = "", *, address: str = "", ready: bool = True) -> int:
        """Register a replica, ready at once unless told otherwise; returns its incarnation."""
        self._next_incarnation += 1
        incarnation = self._next_incarnation
        stages = GROUPS[group.partition("@")[0]]
        suffix = group.removeprefix(group.partition("@")[0])
        registration = Registration(
            group,
            incarnation,
            address or f"unix:/{incarnation}",
            tuple(stage + suffix for stage in stages),
            revision,
        )
        for replaced in self.state.directory.register(registration, self.now):
            self.feed(ReplicaLost(replaced, "replaced"))
        if ready:
            self.ready(incarnation)
        return incarnation

    def ready(self, incarnation: int) -> None:
        """Make every instance of a replica ready."""
        replica = self.state.directory.get(incarnation)
        assert replica is not None
        for instance in replica.registration.instances:
            self.state.directory.set_ready(incarnation, instance, reason=None)
        self.feed(ReplicasChanged())

    def everything(self, revision: str = "") -> World:
        """Register one replica of each group, remembered as `front`, `thinker` and `vocoder`."""
        self.front = self.up("front", revision)
        self.thinker = self.up("thinker", revision)
        self.vocoder = self.up("vocoder", revision)
        return self

    def submit(
        self,
        request_id: str = "r",
        terminals: object = None,
        *,
        timeout: float = 60.0,
        revision: str | None = None,
    ) -> RequestRecord:
        """Submit a request; `terminals` are those it wants, both when null."""
        metadata: Mapping[str, Tree] = {} if terminals is None else {"terminals": terminals}  # type: ignore[dict-item]
        view = RequestView({"prompt": "hello"}, {}, metadata)
        self.feed(Submitted(request_id, view, self.now + timeout, revision))
        return self.record(request_id)

    def record(self, request_id: str = "r") -> RequestRecord:
        """Return the record of an id that is held."""
        record = self.state.requests.get(request_id)
        assert record is not None
        return record

    def phase(self, request_id: str = "r") -> Phase:
        """Return where a request stands now."""
        return self.record(request_id).phase

    def held(self, request_id: str = "r") -> bool:
        """Whether anybody holds the id."""
        return self.state.requests.get(request_id) is not None

    def chunk(
        self,
        record: RequestRecord,
        stage: str,
        sender: int,
        *,
        size: int = 10,
        key: RequestKey | None = None,
    ) -> Output:
        """Have a replica send a chunk; returns it."""
        number = self.sent_chunks
        self.sent_chunks += 1

        def release() -> None:
            self.released[number] += 1

        output = Output(stage, sender, stage, number, {}, None, size, release)
        self.feed(OutputArrived(key or record.key, output))
        return output

    def complete(
        self, record: RequestRecord, stage: str, sender: int, result: Tree = None, *, size: int = 10
    ) -> None:
        """Have a terminal stage complete a request."""
        self.feed(StageCompleted(record.key, sender, stage, result, size))

    def fail(self, record: RequestRecord, sender: int, message: str = "boom") -> None:
        """Have a stage fail a request."""
        self.feed(StageFailed(record.key, sender, StageFailedError(message).info))

    def abort(self, request_id: str = "r") -> None:
        """Have somebody abort a request."""
        self.feed(AbortRequested(request_id, RequestAborted("enough")))

    def leave(self, request_id: str = "r") -> None:
        """Have the reader leave."""
        self.feed(ConsumerLeft(request_id))

    def lose(self, incarnation: int) -> None:
        """Have a replica die."""
        self.feed(ReplicaLost(incarnation, "killed"))

    def acknowledge(self) -> None:
        """Have every replica acknowledge the aborts it received."""
        pending, self.aborts = self.aborts, []
        for abort in pending:
            self.feed(AbortAcked(abort.key, abort.incarnation))

    def wait(self, seconds: float) -> None:
        """Let time pass, at once."""
        self.now += seconds
        self.feed(TimePassed())

    def read(self, record: RequestRecord) -> list[Output]:
        """Read everything there is."""
        outputs = []
        while record.buffer:
            output = self.state.requests.take(record)
            output.release()
            outputs.append(output)
        return outputs

    def feed(self, event: Event) -> None:
        """Give the state machine an event and do what it says."""
        pending = self.state.handle(event, self.now)
        while pending:
            step, *pending = pending
            self.log.append(step)
            follow = self._do(step)
            if follow is not None:
                pending = [*pending, *self.state.handle(follow, self.now)]

    def _do(self, step: Instruction) -> Event | None:
        match step:
            case SendSubmit(_, payload):
                if self.refuse_submits is not None:
                    return SubmitRefused(payload.key, self.refuse_submits)
                self.submits.append(step)
                return None if self.hold_submits else SubmitSent(payload.key)
            case SendAbort():
                self.aborts.append(step)
            case ReturnCredit(outputs):
                for output in outputs:
                    output.release()
            case Finished(key, phase):
                self.ends[key.request_id].append(phase)
            case Dropped(incarnation):
                self.dropped.append(incarnation)
            case Readable() | Released() | AbortCompleted():
                pass
        return None
