"""Replicas that come and go, and which of them a request gets."""

from __future__ import annotations

from collections import Counter

import pytest

from omni_gateway.coordinator.directory import Registration
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.records import Phase
from omni_gateway.coordinator.routes import Routes
from omni_wire.errors import ConfigMismatch, InstanceLost, StaleIncarnation
from tests.support.coordination import GROUPS, World


def test_a_stage_is_ready_once_all_instances_of_its_group_are() -> None:
    world = World()
    world.up("front")
    world.up("thinker")
    vocoder = world.up("vocoder", ready=False)
    assert world.state.readiness().reasons == {"voice": "group 'vocoder': starting"}

    world.ready(vocoder)

    assert world.state.readiness().ready


def test_readiness_ends_with_the_last_replica_of_a_stage() -> None:
    world = World().everything()
    second = world.up("thinker")
    world.lose(world.thinker)
    assert world.state.readiness().ready

    world.lose(second)

    assert world.state.readiness().reasons == {"think": "group 'thinker' has no replica"}


def test_equal_replicas_take_turns_and_busy_ones_are_spared() -> None:
    world = World().everything()
    replicas = [world.thinker, world.up("thinker"), world.up("thinker")]

    for number in range(9):
        world.submit(str(number))
    loads = [_outstanding(world, one) for one in replicas]
    assert loads == [3, 3, 3]

    for number in range(9):
        if world.record(str(number)).bound_to(replicas[1]):
            world.leave(str(number))
    for number in range(9, 12):
        world.submit(str(number))
    assert _outstanding(world, replicas[1]) == 3


def test_idle_replicas_take_turns() -> None:
    world = World().everything()
    replicas = [world.thinker, world.up("thinker"), world.up("thinker")]
    used: Counter[int] = Counter()

    for number in range(9):
        record = world.submit(str(number), ["text"])
        used[next(one for one in replicas if record.bound_to(one))] += 1
        world.complete(record, "text", world.front)
        world.leave(str(number))

    assert used == dict.fromkeys(replicas, 3)


def test_a_draining_replica_gets_nothing_new_and_finishes_what_it_has() -> None:
    world = World().everything()
    old = world.submit("old")
    second = world.up("thinker")
    replica = world.state.directory.get(world.thinker)
    assert replica is not None
    replica.draining = True

    new = world.submit("new")

    assert new.bound_to(second)
    world.complete(old, "text", world.front)
    world.complete(old, "voice", world.vocoder)
    assert old.phase is Phase.COMPLETED


def test_a_disconnected_replica_is_used_only_when_there_is_no_other() -> None:
    world = World().everything()
    first = world.state.directory.get(world.thinker)
    assert first is not None
    first.connected = False
    assert world.submit("only choice").bound_to(world.thinker)

    second = world.up("thinker")

    assert all(world.submit(str(number)).bound_to(second) for number in range(3))


def test_a_new_process_at_an_address_replaces_the_old_one_at_once() -> None:
    world = World().everything()
    old = world.up("vocoder", address="unix:/v")
    records = [world.submit(str(number)) for number in range(2)]

    new = world.up("vocoder", address="unix:/v")

    lost = [record for record in records if isinstance(record.error, InstanceLost)]
    assert len(lost) == 1
    assert world.dropped == [old]
    assert world.state.directory.get(new) is not None


def test_a_process_that_was_replaced_cannot_come_back() -> None:
    world = World().everything()
    old = world.up("vocoder", address="unix:/v")
    world.up("vocoder", address="unix:/v")

    with pytest.raises(StaleIncarnation):
        world.state.directory.register(
            Registration("vocoder", old, "unix:/v", ("voice",)), world.now
        )


def test_a_silent_replica_is_lost_after_its_lease_and_may_register_again() -> None:
    world = World(CoordinatorOptions(lease_seconds=5.0)).everything()
    record = world.submit()
    world.now += 4.0
    for incarnation in (world.front, world.thinker):
        replica = world.state.directory.get(incarnation)
        assert replica is not None
        replica.heard = world.now

    world.wait(1.0)

    assert world.dropped == [world.vocoder]
    assert isinstance(record.error, InstanceLost)
    again = Registration("vocoder", world.vocoder, "unix:/again", ("voice",))
    assert world.state.directory.register(again, world.now) == []


def test_a_replica_that_registers_again_within_its_lease_keeps_its_requests() -> None:
    world = World().everything()
    record = world.submit()
    replica = world.state.directory.get(world.thinker)
    assert replica is not None
    replica.connected = False

    world.state.directory.register(replica.registration, world.now)

    assert replica.connected
    assert record.phase is Phase.RUNNING
    assert replica.outstanding == 1


@pytest.mark.parametrize(
    ("group", "instances"),
    [
        pytest.param("decoder", ("voice",), id="a group the pipeline does not have"),
        pytest.param("vocoder", ("think",), id="a stage of another group"),
        pytest.param("front", ("prepare",), id="a stage missing"),
        pytest.param("vocoder", ("voice", "voice@r1"), id="a stage twice"),
        pytest.param("vocoder", (), id="no stage"),
    ],
)
def test_a_group_with_other_stages_than_the_pipeline_says_is_refused(
    group: str, instances: tuple[str, ...]
) -> None:
    world = World()

    with pytest.raises(ConfigMismatch):
        world.state.directory.register(Registration(group, 7, "unix:/x", instances), world.now)

    assert len(world.state.directory) == 0


def test_replicas_of_one_request_serve_one_revision() -> None:
    world = World().everything("1")
    world.up("front", "2")
    world.up("thinker", "2")
    pinned = world.submit("pinned", revision="2")
    assert pinned.phase is Phase.PENDING

    free = [world.submit(str(number)) for number in range(3)]
    assert all(record.binding and record.binding.revision == "1" for record in free)

    world.up("vocoder", "2")
    assert pinned.binding is not None
    assert pinned.binding.revision == "2"


def test_complete_revisions_share_the_load() -> None:
    world = World().everything("1")
    world.everything("2")

    used = Counter(
        record.binding.revision
        for number in range(10)
        if (record := world.submit(str(number))).binding is not None
    )

    assert used == {"1": 5, "2": 5}


def test_groups_that_an_edit_left_alone_serve_both_revisions() -> None:
    world = World().everything("shape-1")
    thinker = world.up("thinker", "shape-2")
    old = {"front": "shape-1", "thinker": "shape-1", "vocoder": "shape-1"}

    world.state.directory.set_routes(Routes({"a": old, "b": {**old, "thinker": "shape-2"}}))

    new, first = world.submit("new", revision="b"), world.submit("old", revision="a")
    assert new.bound_to(thinker)
    assert first.bound_to(world.thinker)
    for record in (new, first):
        assert record.bound_to(world.front)
        assert record.bound_to(world.vocoder)


def test_copies_of_a_group_whose_pods_differ_serve_one_revision() -> None:
    world = World().everything("shape-1")
    copies = {"thinker@r0": "shape-2", "thinker@r1": "shape-3"}
    replicas = [world.up(group, revision) for group, revision in copies.items()]
    others = {"front": "shape-1", "vocoder": "shape-1"}

    world.state.directory.set_routes(Routes({"a": {**others, **copies}}))

    first, second = world.submit("first"), world.submit("second")
    assert all(any(one.bound_to(it) for one in (first, second)) for it in replicas)


def test_pods_of_no_known_revision_get_no_request() -> None:
    world = World().everything("shape-1")
    world.state.directory.set_routes(Routes({"b": dict.fromkeys(GROUPS, "shape-2")}))
    record = world.submit()
    assert record.waiting

    world.everything("shape-2")

    assert record.binding is not None
    assert record.binding.revision == "b"


def test_a_revision_whose_pods_are_gone_can_no_longer_be_pinned() -> None:
    world = World(CoordinatorOptions(route_wait_seconds=1.0, lease_seconds=100.0)).everything("2")

    record = world.submit(revision="1")
    world.wait(1.0)

    assert record.error is not None
    assert "revision '1'" in str(record.error)


def _outstanding(world: World, incarnation: int) -> int:
    replica = world.state.directory.get(incarnation)
    assert replica is not None
    return replica.outstanding
