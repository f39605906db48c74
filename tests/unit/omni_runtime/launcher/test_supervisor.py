"""When processes start, restart and stop: events in, instructions out, the clock in hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from signal import SIGKILL, SIGTERM, Signals

from hypothesis import given, settings
from hypothesis import strategies as st

from omni_runtime.launcher.roles import Patience, Role
from omni_runtime.launcher.supervision_events import (
    AllReady,
    BecameReady,
    Begun,
    Event,
    Exited,
    Finish,
    GotStuck,
    Instruction,
    MadeProgress,
    Phase,
    Say,
    Send,
    SetTimer,
    ShowFailure,
    Start,
    StopRequested,
    Timer,
    TimerFired,
)
from omni_runtime.launcher.supervisor import Supervisor
from omni_runtime.weight_share.role import LEADER_LOST_EXIT

PATIENCE = Patience(
    start=100, drain=30, terminate=5, kill=10, first_restart=1, last_restart=8, stable=10
)
GATEWAY = Role("gateway", stop_rank=0, drains=True)
RANKS = (Role("tp0", takes_down=("tp1",)), Role("tp1", takes_down=("tp0",)))
SHARING = (
    Role("leader", takes_down=("follower",)),
    Role("follower", starts_after="leader", stop_rank=1),
)
ALL = (GATEWAY, Role("encoder"), *RANKS, *SHARING)


@dataclass
class Run:
    """A supervisor whose processes exist only here.

    Attributes:
        told: what it asked for since this was last cleared.
    """

    roles: Sequence[Role]
    now: float = 0.0
    told: list[Instruction] = field(default_factory=list)
    timers: dict[Timer, float] = field(default_factory=dict)
    living: set[str] = field(default_factory=set)
    finished: int | None = None

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(self.roles, PATIENCE)
        self.happens(Begun())

    def happens(self, *events: Event) -> None:
        for event in events:
            if isinstance(event, Exited):
                self.living.discard(event.name)
            for instruction in self.supervisor.handle(event, self.now):
                self._take(instruction)

    def passes(self, seconds: float) -> None:
        """Let time pass, timers going off in order."""
        end = self.now + seconds
        while due := min((when for when in self.timers.values() if when <= end), default=None):
            timer = next(timer for timer, when in self.timers.items() if when == due)
            del self.timers[timer]
            self.now = due
            self.happens(TimerFired(timer))
        self.now = end

    def ready(self, *names: str) -> None:
        self.happens(*map(BecameReady, names))

    def all_ready(self) -> None:
        self.ready(*(role.name for role in self.roles))
        self.told.clear()

    @property
    def started(self) -> list[str]:
        return [each.name for each in self.told if isinstance(each, Start)]

    @property
    def sent(self) -> list[tuple[str, Signals]]:
        return [(each.name, each.signal) for each in self.told if isinstance(each, Send)]

    def _take(self, instruction: Instruction) -> None:
        self.told.append(instruction)
        match instruction:
            case Start(name):
                assert name not in self.living, f"{name} is started while it runs"
                self.living.add(name)
            case SetTimer(timer, seconds):
                self.timers[timer] = self.now + seconds
            case Finish(code):
                self.finished = code


def test_everything_starts_at_once_but_followers_of_a_leader() -> None:
    run = Run(ALL)
    assert run.started == ["gateway", "encoder", "tp0", "tp1", "leader"]
    run.told.clear()
    run.ready("leader")
    assert run.started == ["follower"]


def test_ready_is_announced_once_when_the_last_process_is() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.ready("encoder")
    assert AllReady() not in run.told
    run.ready("gateway")
    assert run.told.count(AllReady()) == 1
    run.happens(Exited("encoder", 1))
    run.passes(1)
    run.ready("encoder")
    assert run.told.count(AllReady()) == 1
    assert Say("encoder", "ready again") in run.told


def test_a_process_that_dies_before_it_was_ready_ends_the_run_with_its_last_words() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.ready("gateway")
    run.happens(Exited("encoder", 3))
    assert ShowFailure("encoder", "exit code 3") in run.told
    assert run.sent == [("gateway", SIGTERM)]
    run.happens(Exited("gateway", 0))
    assert run.finished == 1


def test_a_process_that_dies_later_is_restarted_while_the_others_go_on() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.all_ready()
    run.happens(Exited("encoder", -SIGKILL))
    assert ShowFailure("encoder", "killed by SIGKILL") in run.told
    assert run.supervisor.phases == {"gateway": Phase.READY, "encoder": Phase.RESTARTING}
    assert run.started == []
    run.passes(PATIENCE.first_restart)
    assert run.started == ["encoder"]
    assert run.sent == []


def test_the_pause_before_a_restart_doubles_until_the_process_stays() -> None:
    run = Run((Role("encoder"),))
    run.all_ready()
    pauses = []
    for _ in range(6):
        run.told.clear()
        run.happens(Exited("encoder", 1))
        pauses += [each.seconds for each in run.told if isinstance(each, SetTimer)]
        run.passes(pauses[-1])
        run.ready("encoder")
    assert pauses == [1, 2, 4, 8, 8, 8]
    run.passes(PATIENCE.stable)
    run.told.clear()
    run.happens(Exited("encoder", 1))
    assert [each.seconds for each in run.told if isinstance(each, SetTimer)] == [1]


def test_a_restart_that_fails_is_tried_again() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.all_ready()
    run.happens(Exited("encoder", 1))
    run.passes(1)
    run.happens(Exited("encoder", 1))
    run.told.clear()
    run.passes(2)
    assert run.started == ["encoder"]
    assert run.finished is None


def test_a_process_that_is_not_restarted_ends_the_run() -> None:
    run = Run((GATEWAY, Role("encoder", restarts=False)))
    run.all_ready()
    run.happens(Exited("encoder", -SIGKILL))
    assert run.sent == [("gateway", SIGTERM)]
    run.happens(Exited("gateway", 0))
    assert run.finished == 1


def test_all_ranks_of_a_stage_restart_together() -> None:
    run = Run((GATEWAY, *RANKS))
    run.all_ready()
    run.happens(Exited("tp1", 1))
    assert run.sent == [("tp0", SIGTERM)]
    run.passes(2)
    assert run.started == [], "one rank must not start while the other still runs"
    run.happens(Exited("tp0", -SIGTERM))
    run.passes(1)
    assert run.started == ["tp0", "tp1"]


def test_a_rank_that_hangs_is_killed_before_the_restart() -> None:
    run = Run((GATEWAY, *RANKS))
    run.all_ready()
    run.happens(Exited("tp1", 1))
    run.passes(PATIENCE.terminate)
    assert run.sent == [("tp0", SIGTERM), ("tp0", SIGKILL)]


def test_ranks_that_die_at_once_restart_once() -> None:
    run = Run((GATEWAY, *RANKS))
    run.all_ready()
    run.happens(Exited("tp1", 1), Exited("tp0", 1))
    run.passes(1)
    assert run.started == ["tp0", "tp1"]


def test_a_leader_takes_its_followers_along_and_is_ready_before_they_start() -> None:
    run = Run((GATEWAY, *SHARING))
    run.all_ready()
    run.happens(Exited("leader", 1))
    assert run.sent == [("follower", SIGTERM)]
    run.happens(Exited("follower", 70))
    run.passes(1)
    assert run.started == ["leader"]
    run.ready("leader")
    assert run.started == ["leader", "follower"]


def test_a_follower_that_noticed_the_death_first_still_waits_for_the_leader() -> None:
    run = Run((GATEWAY, *SHARING))
    run.all_ready()
    run.happens(Exited("follower", 70), Exited("leader", 1))
    run.passes(1)
    assert run.started == ["leader"]
    run.ready("leader")
    assert run.started == ["leader", "follower"]


def test_a_follower_that_loses_its_leader_before_it_was_ready_does_not_end_the_run() -> None:
    run = Run(SHARING)
    run.ready("leader")
    run.happens(Exited("follower", LEADER_LOST_EXIT), Exited("leader", -9))
    assert ShowFailure("follower", "lost leader") in run.told
    run.told.clear()
    run.passes(1)
    assert run.started == ["leader"]
    run.ready("leader")
    assert run.started == ["leader", "follower"]


def test_a_follower_that_fails_by_itself_before_it_was_ready_ends_the_run() -> None:
    run = Run(SHARING)
    run.ready("leader")
    run.happens(Exited("follower", 1), Exited("leader", 0))
    assert run.finished == 1


def test_a_follower_restarts_alone_while_its_leader_goes_on() -> None:
    run = Run((GATEWAY, *SHARING))
    run.all_ready()
    run.happens(Exited("follower", 1))
    run.passes(1)
    assert run.started == ["follower"]
    assert run.sent == []


def test_a_start_without_progress_is_killed_and_counts_as_failed() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.ready("gateway")
    run.passes(60)
    run.happens(MadeProgress("encoder"))
    run.passes(99)
    assert run.sent == []
    run.passes(1)
    assert run.sent == [("encoder", SIGKILL)]
    run.happens(Exited("encoder", -SIGKILL), Exited("gateway", 0))
    assert run.finished == 1


def test_a_process_that_is_stuck_is_killed_and_restarted() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.all_ready()
    run.happens(GotStuck("encoder"), GotStuck("encoder"))
    assert run.sent == [("encoder", SIGKILL)]
    run.happens(Exited("encoder", -SIGKILL))
    run.passes(1)
    assert run.started == ["encoder"]


def test_a_stop_drains_the_gateway_first_then_followers_then_the_rest() -> None:
    run = Run(ALL)
    run.all_ready()
    run.happens(StopRequested())
    assert run.sent == [("gateway", SIGTERM)]
    run.told.clear()
    run.happens(Exited("gateway", 0))
    assert run.sent == [("follower", SIGTERM)]
    run.told.clear()
    run.happens(Exited("follower", 0))
    assert {name for name, _ in run.sent} == {"encoder", "tp0", "tp1", "leader"}
    run.happens(*(Exited(name, 0) for name in ("encoder", "tp0", "tp1", "leader")))
    assert run.finished == 0


def test_requests_that_do_not_end_delay_a_stop_for_a_bounded_time() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.all_ready()
    run.happens(StopRequested())
    run.passes(PATIENCE.drain)
    assert run.sent == [("gateway", SIGTERM)] * 2
    run.passes(PATIENCE.terminate)
    assert run.sent[-1] == ("gateway", SIGKILL)
    run.happens(Exited("gateway", -SIGKILL), Exited("encoder", 0))
    assert run.finished == 0


def test_a_second_request_stops_now_and_a_third_kills() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.all_ready()
    run.happens(StopRequested(), StopRequested())
    assert run.sent == [("gateway", SIGTERM), ("gateway", SIGTERM), ("encoder", SIGTERM)]
    run.happens(StopRequested())
    assert run.sent[3:] == [("gateway", SIGKILL), ("encoder", SIGKILL)]


def test_nothing_is_restarted_once_a_stop_was_asked_for() -> None:
    run = Run((GATEWAY, Role("encoder")))
    run.all_ready()
    run.happens(Exited("encoder", 1), StopRequested())
    run.passes(10)
    run.happens(Exited("gateway", 0))
    assert run.started == []
    assert run.finished == 0


def test_a_process_that_cannot_be_killed_does_not_hold_up_the_end() -> None:
    run = Run((Role("encoder"),))
    run.all_ready()
    run.happens(StopRequested())
    run.passes(PATIENCE.terminate + PATIENCE.kill)
    assert run.finished == 1


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    names = st.sampled_from([role.name for role in ALL])
    kinds = st.sampled_from(["ready", "dies", "time", "stop"])
    return draw(st.lists(st.tuples(kinds, names, st.integers(0, 40)), max_size=40))


@given(_histories())
@settings(max_examples=150, deadline=None)
def test_any_history_ends_with_no_process_left(history: Iterable[tuple[str, str, int]]) -> None:
    run = Run(ALL)
    for kind, name, number in history:
        if run.finished is not None:
            break
        if kind == "time":
            run.passes(number)
        elif kind == "stop":
            run.happens(StopRequested())
        elif name in run.living:
            run.happens(BecameReady(name) if kind == "ready" else Exited(name, number))
    run.happens(StopRequested())
    for name in sorted(run.living):
        run.happens(Exited(name, 0))
    # Whoever was not signalled yet is so after the others ended.
    for name in sorted(run.living):
        run.happens(Exited(name, 0))
    assert run.living == set()
    assert run.finished is not None
    run.told.clear()
    run.passes(1000)
    assert run.started == [], "a timer of the past started something after the end"
