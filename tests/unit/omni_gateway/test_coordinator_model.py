"""Any interleaving of everything that can happen to a Coordinator ends clean.

A machine plays clients, replicas and time. After every step what the Coordinator counts must be
what is really there; at the end, once every replica has confirmed its aborts and every reader has
left, nothing may remain: no id, no credit, no map entry, no load.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from omni_gateway.coordinator.events import AbortAcked
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.records import RequestRecord
from omni_wire.errors import FrameTooLarge, ServiceError
from omni_wire.identity import RequestKey
from tests.support.coordination import GROUPS, World

TERMINAL_GROUP = {"text": "front", "voice": "vocoder"}
TERMINALS = st.sampled_from([["text"], ["voice"], ["text", "voice"]])
IDS = st.sampled_from("abcdef")
OPTIONS = CoordinatorOptions(
    max_in_flight=4,
    max_waiting=2,
    route_wait_seconds=3.0,
    max_total_backlog_bytes=400,
    lease_seconds=5.0,
    max_resubmits=1,
)


@dataclass(frozen=True)
class Sender:
    """A key and a stage that may speak for it, perhaps long after the request ended."""

    key: RequestKey
    record: RequestRecord = field(compare=False)


class CoordinatorModel(RuleBasedStateMachine):
    """Clients, replicas and time, in any order."""

    senders: Bundle[Sender] = Bundle("senders")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(OPTIONS)
        self.admitted: dict[str, int] = {}

    @initialize(complete=st.integers(0, 3))
    def some_are_there(self, complete: int) -> None:
        for _ in range(complete):
            self.world.everything("1")

    @rule(group=st.sampled_from(sorted(GROUPS)), revision=st.sampled_from(["1", "2"]))
    def replica_comes(self, group: str, revision: str) -> None:
        self.world.up(group, revision)

    @precondition(lambda self: len(self.world.state.directory) > 0)
    @rule(data=st.data())
    def replica_is_lost(self, data: st.DataObject) -> None:
        self.world.lose(self._replica(data))

    @precondition(lambda self: len(self.world.state.directory) > 0)
    @rule(data=st.data(), draining=st.booleans())
    def replica_drains(self, data: st.DataObject, draining: bool) -> None:
        replica = self.world.state.directory.get(self._replica(data))
        assert replica is not None
        replica.draining = draining

    @rule(
        target=senders,
        request_id=IDS,
        terminals=TERMINALS,
        timeout=st.floats(0.5, 20),
        revision=st.sampled_from([None, "1", "2"]),
        sendable=st.sampled_from([True, True, True, False]),
    )
    def client_submits(
        self,
        request_id: str,
        terminals: list[str],
        timeout: float,
        revision: str | None,
        sendable: bool,
    ) -> Sender | MultipleResults[Sender]:
        self.world.refuse_submits = None if sendable else FrameTooLarge("too large")
        try:
            record = self.world.submit(request_id, terminals, timeout=timeout, revision=revision)
        except ServiceError:
            return multiple()
        finally:
            self.world.refuse_submits = None
        self.admitted[request_id] = self.admitted.get(request_id, 0) + 1
        return Sender(record.key, record)

    @rule(sender=senders, stage=st.sampled_from(["text", "voice"]), size=st.integers(0, 300))
    def stage_sends_chunk(self, sender: Sender, stage: str, size: int) -> None:
        for incarnation in self._speakers(sender, stage):
            self.world.chunk(sender.record, stage, incarnation, size=size, key=sender.key)

    @rule(sender=senders, stage=st.sampled_from(["text", "voice"]))
    def stage_completes(self, sender: Sender, stage: str) -> None:
        for incarnation in self._speakers(sender, stage):
            self.world.complete(sender.record, stage, incarnation)

    @rule(sender=senders, stage=st.sampled_from(["text", "voice"]))
    def stage_fails(self, sender: Sender, stage: str) -> None:
        for incarnation in self._speakers(sender, stage):
            self.world.fail(sender.record, incarnation)

    @rule(sender=senders)
    def client_reads(self, sender: Sender) -> None:
        if self.world.state.requests.get(sender.key.request_id) is sender.record:
            self.world.read(sender.record)

    @rule(sender=senders)
    def somebody_aborts(self, sender: Sender) -> None:
        self.world.abort(sender.key.request_id)

    @rule(sender=consumes(senders))
    def client_leaves(self, sender: Sender) -> None:
        if self.world.state.requests.get(sender.key.request_id) is sender.record:
            self.world.leave(sender.key.request_id)

    @precondition(lambda self: len(self.world.aborts) > 0)
    @rule(data=st.data())
    def replica_confirms_abort(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.world.aborts) - 1))
        abort = self.world.aborts.pop(index)
        self.world.feed(AbortAcked(abort.key, abort.incarnation))
        self.world.feed(AbortAcked(abort.key, abort.incarnation))

    @rule(seconds=st.floats(0, 6), heard=st.booleans())
    def time_passes(self, seconds: float, heard: bool) -> None:
        if heard:
            for replica in self.world.state.directory:
                replica.heard = self.world.now + seconds
        self.world.wait(seconds)

    @invariant()
    def counts_are_true(self) -> None:
        state = self.world.state
        unfinished = [one for one in state.requests if not one.phase.finished]
        assert state.requests.admission.in_flight == len(unfinished) <= OPTIONS.max_in_flight
        for replica in state.directory:
            bound = [
                one
                for one in unfinished
                if one.binding is not None and replica.incarnation in one.binding.needed
            ]
            assert replica.outstanding == len(bound)
        held = sum(one.buffer.size_bytes for one in state.requests)
        assert state.requests.backlog.size_bytes == held <= 400

    @invariant()
    def every_request_is_where_it_should_be(self) -> None:
        state = self.world.state
        for record in state.requests:
            assert record.held
            if record.phase.finished:
                continue
            assert record.deadline > self.world.now
            assert record.waiting == (record.request_id in state.requests.waiting)
            if record.binding is not None:
                assert all(state.directory.get(one) for one in record.binding.needed)
            assert set(record.results) < set(record.expected)
        alive = {replica.incarnation for replica in state.directory}
        for record in state.requests:
            for missing in record.unacknowledged.values():
                assert missing
                assert missing <= alive

    @invariant()
    def an_id_is_held_until_every_living_replica_confirmed(self) -> None:
        state = self.world.state
        for abort in self.world.aborts:
            if state.directory.get(abort.incarnation) is None:
                continue
            record = state.requests.get(abort.key.request_id)
            assert record is not None
            assert abort.incarnation in record.unacknowledged[abort.key]

    @invariant()
    def every_admitted_request_ends_once_or_is_still_there(self) -> None:
        unfinished = sum(not one.phase.finished for one in self.world.state.requests)
        ended = sum(map(len, self.world.ends.values()))
        assert ended + unfinished == sum(self.admitted.values())

    @invariant()
    def credit_is_returned_once(self) -> None:
        unread = sum(len(one.buffer) for one in self.world.state.requests)
        assert set(self.world.released.values()) <= {1}
        assert len(self.world.released) + unread == self.world.sent_chunks

    def teardown(self) -> None:
        world = self.world
        for record in list(world.state.requests):
            if record.has_consumer:
                world.leave(record.request_id)
        world.acknowledge()
        requests = world.state.requests
        assert len(requests) == 0
        assert not requests.waiting
        assert requests.admission.in_flight == 0
        assert requests.backlog.size_bytes == len(requests.backlog) == 0
        assert all(replica.outstanding == 0 for replica in world.state.directory)
        assert len(world.released) == world.sent_chunks
        assert sum(map(len, world.ends.values())) == sum(self.admitted.values())

    def _replica(self, data: st.DataObject) -> int:
        known = [replica.incarnation for replica in self.world.state.directory]
        return data.draw(st.sampled_from(known))

    def _speakers(self, sender: Sender, stage: str) -> list[int]:
        """Replicas that could send for this stage; those of others must be ignored."""
        group = TERMINAL_GROUP[stage]
        return [one.incarnation for one in self.world.state.directory.of_group(group)]


CoordinatorModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestCoordinatorModel = CoordinatorModel.TestCase
