"""Sender and receiver joined by a stream that breaks anywhere: whatever happens, nothing is lost,
repeated, reordered within a request, or left over."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from omni_wire.accounts import Credits, Item
from omni_wire.errors import InstanceLost, WireFormatError
from omni_wire.identity import RequestKey
from omni_wire.receiver_state import EnvelopeMissing, ReceiverState
from omni_wire.sender_state import Send, SenderState

KEYS = tuple(RequestKey("g", name) for name in "abcd")
CREDITS = Credits(edge=1000, request=300, bulk=600)
LARGEST = 200

Sent = Send[int]


class SessionMachine(RuleBasedStateMachine):
    """Posts, carries, releases, aborts and breaks in any order, then lets everything through."""

    def __init__(self) -> None:
        super().__init__()
        self.sender: SenderState[int] = SenderState(CREDITS)
        self.receiver = ReceiverState(CREDITS, slack=LARGEST)
        self.connected = False
        self.numbers = count(1)
        # What was posted of each request, by number, and what arrived of it.
        self.posted: dict[RequestKey, list[int]] = {key: [] for key in KEYS}
        self.arrived: dict[RequestKey, list[int]] = {key: [] for key in KEYS}
        self.aborted: set[RequestKey] = set()
        self.on_the_way: deque[Sent] = deque()
        self.unreleased: list[tuple[int, RequestKey]] = []
        self.assembling: Item[int] | None = None
        self.assembling_number = 0
        self.stalls: dict[RequestKey, bool] = {}

    @initialize()
    def start(self) -> None:
        self.connect()

    def note(self) -> None:
        for change in self.sender.stall_changes():
            assert self.stalls.get(change.key, False) is not change.stalled
            self.stalls[change.key] = change.stalled

    def live(self, keys: tuple[RequestKey, ...]) -> tuple[RequestKey, ...]:
        return tuple(key for key in keys if key not in self.aborted)

    def post(self, item: Item[int]) -> None:
        for key in item.keys:
            self.posted[key].append(item.content)
        self.sender.post(item)
        self.note()

    @rule(key=st.sampled_from(KEYS), cost=st.integers(1, LARGEST))
    def post_one(self, key: RequestKey, cost: int) -> None:
        if key not in self.aborted:
            self.post(Item((key,), cost, 1, False, next(self.numbers)))

    @rule(key=st.sampled_from(KEYS), cost=st.integers(1, 700), parts=st.integers(1, 4))
    def post_bulk(self, key: RequestKey, cost: int, parts: int) -> None:
        if key not in self.aborted:
            self.post(Item((key,), cost, parts, True, next(self.numbers)))

    @rule(
        about=st.lists(st.sampled_from(KEYS), unique=True, min_size=1), cost=st.integers(4, LARGEST)
    )
    def post_frame(self, about: list[RequestKey], cost: int) -> None:
        keys = self.live(tuple(about))
        blocked = self.sender.blocked(keys)
        apart = [(keys[row],) for row in blocked]
        together = tuple(key for row, key in enumerate(keys) if row not in blocked)
        number = next(self.numbers)
        for part in [together, *apart]:
            if part:
                self.post(Item(part, cost, 1, False, number))

    @rule(key=st.sampled_from(KEYS))
    def abort(self, key: RequestKey) -> None:
        if key in self.aborted:
            return
        self.aborted.add(key)
        self.sender.drop(key)
        self.sender.post(Item((key,), 0, 1, False, -KEYS.index(key) - 1), urgent=True)
        self.note()

    @rule(most=st.integers(1, 8))
    def carry(self, most: int) -> None:
        for _ in range(most):
            send = self.sender.take()
            self.note()
            if send is None:
                return
            self.on_the_way.append(send)

    @rule(most=st.integers(1, 8), twice=st.booleans())
    def arrive(self, most: int, twice: bool) -> None:
        for _ in range(min(most, len(self.on_the_way))):
            send = self.on_the_way.popleft()
            for _ in range(1 + twice):
                if self.receiver.accept(send.sequence):
                    self.receive(send)

    def receive(self, send: Sent) -> None:
        item = send.item
        if item.content < 0:
            self.receiver.bury(item.keys[0])
            if self.assembling is not None and self.assembling.keys == item.keys:
                self.receiver.release(self.assembling_number)
                self.assembling = None
            return
        if not item.bulk:
            stale = self.receiver.admit(send.sequence, item.keys, item.cost)
            self.deliver(send.sequence, item, stale)
            return
        if send.part == 0:
            assert self.assembling is None
            self.receiver.begin_bulk(send.sequence, item.keys, item.cost)
            self.assembling, self.assembling_number = item, send.sequence
        assert self.assembling is item
        if send.part == item.parts - 1:
            self.assembling = None
            self.deliver(send.first, item, self.receiver.end_bulk(send.first))

    def deliver(self, sequence: int, item: Item[int], stale: Sequence[int]) -> None:
        for row, key in enumerate(item.keys):
            if row not in stale:
                self.arrived[key].append(item.content)
                self.unreleased.append((sequence, key))

    @precondition(lambda self: self.unreleased)
    @rule(data=st.data(), twice=st.booleans())
    def release(self, data: st.DataObject, twice: bool) -> None:
        index = data.draw(st.integers(0, len(self.unreleased) - 1))
        sequence, key = self.unreleased.pop(index)
        for _ in range(1 + twice):
            self.receiver.release(sequence, key)

    @rule(lost=st.booleans())
    def acknowledge(self, lost: bool) -> None:
        # An acknowledgement is lost only together with its stream.
        if not self.connected:
            return
        owed = self.receiver.take_owed()
        if lost:
            self.disconnect()
        else:
            self.sender.acknowledge(owed.received, owed.released, owed.rows)
        self.note()

    @precondition(lambda self: self.connected)
    @rule(arrived=st.integers(0, 10))
    def cut(self, arrived: int) -> None:
        self.arrive(arrived, twice=False)
        self.disconnect()

    def disconnect(self) -> None:
        self.on_the_way.clear()
        self.sender.disconnected()
        self.connected = False

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        resume = self.receiver.resume()
        self.sender.connected(resume.received, CREDITS, resume.unreleased, resume.rows)
        self.note()
        self.connected = True

    @invariant()
    def each_request_arrives_in_order_and_once(self) -> None:
        for key in KEYS:
            posted, arrived = self.posted[key], self.arrived[key]
            assert arrived == posted[: len(arrived)] or key in self.aborted
            assert sorted(set(arrived)) == arrived

    @invariant()
    def credit_bounds_memory(self) -> None:
        assert self.receiver.held_bytes <= CREDITS.edge + LARGEST + max(CREDITS.bulk, 700)
        assert self.sender.accounts.total <= CREDITS.edge + LARGEST

    @invariant()
    def stalls_are_reported(self) -> None:
        for key in KEYS:
            assert self.sender.stalled(key) is self.stalls.get(key, False)

    def teardown(self) -> None:
        """Let everything through: nothing may be left anywhere."""
        if not self.connected:
            self.connect()
        for _ in range(1000):
            self.carry(100)
            self.arrive(100, twice=False)
            while self.unreleased:
                self.receiver.release(*self.unreleased.pop())
            owed = self.receiver.take_owed()
            self.sender.acknowledge(owed.received, owed.released, owed.rows)
            self.note()
            if self.sender.idle and not self.sender.accounts.unreleased_bytes:
                break
        assert self.sender.idle
        assert self.sender.accounts.unreleased_bytes == 0
        assert self.sender.held_bytes == 0
        assert self.receiver.held_bytes == 0
        assert not any(self.stalls.values())
        for key in KEYS:
            if key not in self.aborted:
                assert self.arrived[key] == self.posted[key]


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def connected_sender(credits: Credits = CREDITS) -> SenderState[str]:
    sender: SenderState[str] = SenderState(credits)
    sender.connected(0, credits)
    return sender


def one(key: RequestKey, cost: int, content: str = "", *, parts: int = 0) -> Item[str]:
    return Item((key,), cost, parts or 1, bool(parts), content)


def taken(sender: SenderState[str]) -> list[str]:
    return [send.item.content for send in iter(sender.take, None)]


A, B, C, D = KEYS


def test_parts_alternate_with_the_items_of_others() -> None:
    sender = connected_sender()
    sender.post(one(A, 500, "bulk", parts=3))
    for name in ("x", "y"):
        sender.post(one(B, 1, name))
    assert taken(sender) == ["bulk", "x", "bulk", "y", "bulk"]


def test_an_abort_overtakes_everything() -> None:
    sender = connected_sender()
    sender.post(one(A, 500, "bulk", parts=3))
    sender.post(one(B, 1, "x"))
    sender.post(one(C, 0, "abort"), urgent=True)
    assert taken(sender)[0] == "abort"


def test_a_payload_larger_than_its_credit_passes_when_alone() -> None:
    sender = connected_sender()
    sender.post(one(A, 5000, "first", parts=2))
    sender.post(one(B, 10, "second", parts=1))
    assert taken(sender) == ["first", "first"]
    sender.acknowledge(2, released=[1])
    assert taken(sender) == ["second"]


@pytest.mark.parametrize("keys", [(), (A,)], ids=["about the process", "an abort"])
def test_what_costs_nothing_is_forgotten_once_it_is_received(keys: tuple[RequestKey, ...]) -> None:
    class Content: ...

    sender: SenderState[Content] = SenderState(CREDITS)
    sender.connected(0, CREDITS)
    content = Content()
    forgotten = weakref.ref(content)
    sender.post(Item(keys, 0, 1, False, content))
    del content
    send = sender.take()
    assert send is not None
    sender.acknowledge(send.sequence)
    del send
    assert forgotten() is None


def test_a_request_that_keeps_its_rows_holds_those_alone() -> None:
    sender = connected_sender()
    receiver = ReceiverState(CREDITS, slack=0)
    steps = 0
    while not sender.blocked((A, B)):
        sender.post(Item((A, B), 40, 1, False, "step"))
        send = sender.take()
        assert send is not None
        receiver.accept(send.sequence)
        receiver.admit(send.sequence, (A, B), 40)
        receiver.release(send.sequence, B)
        owed = receiver.take_owed()
        sender.acknowledge(owed.received, owed.released, owed.rows)
        steps += 1
        assert receiver.held_bytes == sender.accounts.unreleased_bytes == 20 * steps
    assert sender.blocked((A, B)) == [0]
    for sequence in range(1, steps + 1):
        receiver.release(sequence, A)
    owed = receiver.take_owed()
    assert owed.rows == ()
    sender.acknowledge(owed.received, owed.released, owed.rows)
    assert receiver.held_bytes == sender.accounts.unreleased_bytes == 0
    assert not sender.blocked((A, B))


def test_the_smaller_limits_of_both_sides_hold() -> None:
    sender: SenderState[str] = SenderState(CREDITS)
    sender.connected(0, Credits(edge=50, request=10, bulk=10))
    for _ in range(10):
        sender.post(one(A, 10))
    assert len(taken(sender)) == 1
    assert sender.stalled(A)


def test_a_receiver_that_forgot_is_no_longer_the_peer() -> None:
    sender = connected_sender()
    sender.post(one(A, 1))
    taken(sender)
    sender.acknowledge(1)
    sender.disconnected()
    with pytest.raises(InstanceLost):
        sender.connected(0, CREDITS)


@pytest.mark.parametrize("received", [1, 1 << 60])
def test_receipt_of_what_was_never_sent_is_a_lie(received: int) -> None:
    with pytest.raises(WireFormatError):
        connected_sender().acknowledge(received)


def test_a_row_that_a_message_lacks_cannot_be_released() -> None:
    sender = connected_sender()
    sender.post(one(A, 1))
    taken(sender)
    with pytest.raises(WireFormatError):
        sender.acknowledge(1, rows=[(1, 1)])


def test_an_overtaken_envelope_is_missed() -> None:
    receiver = ReceiverState(CREDITS, slack=0)
    with pytest.raises(EnvelopeMissing):
        receiver.accept(2)


def test_a_sender_without_credit_is_refused() -> None:
    receiver = ReceiverState(CREDITS, slack=0)
    receiver.admit(1, (A,), CREDITS.edge)
    with pytest.raises(WireFormatError):
        receiver.admit(2, (B,), 1)
    receiver.begin_bulk(3, (C,), CREDITS.bulk)
    with pytest.raises(WireFormatError):
        receiver.begin_bulk(4, (D,), 1)


def test_an_attempt_that_was_replaced_is_dropped() -> None:
    receiver = ReceiverState(CREDITS, slack=0)
    again = A._replace(epoch=1)
    assert receiver.admit(1, (A,), 1) == []
    assert receiver.admit(2, (again,), 1) == []
    assert receiver.admit(3, (B, A), 2) == [1]
    assert receiver.admit(4, (A,), 1) == [0]
    assert receiver.admit(5, (again,), 1) == []
