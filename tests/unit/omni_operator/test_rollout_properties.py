"""What a rollout promises, through any sequence of edits, failures, reverts and kills.

The promises are judged by the simulated cluster at every step (`tests/support/rollout_cluster`): no
pod goes with requests in flight, paths serve as much as promised, pods and GPUs stay in bounds.
Here sequences are made up, and in the end everything must settle and then be quiet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_operator.plan.actions import Wait
from omni_operator.plan.paths import Paths
from omni_operator.plan.policy import StepLimits
from tests.support.rollout_cluster import Pod, RolloutCluster, Shape

NAMES = ("thinker", "talker", "decode")
GROUPINGS = ("own", "renamed", "split", "merged")
"""What the groups of a stage are: as at first, one of another name, two, none of its own."""
TICKS_TO_SETTLE = 200
Operation = tuple[Any, ...]
"""A word and what it is done to."""

surging = st.builds(StepLimits, max_surge=st.integers(1, 2), max_unavailable=st.integers(0, 1))
surge_free = st.builds(StepLimits, max_surge=st.just(0), max_unavailable=st.integers(1, 2))


@st.composite
def clusters(draw: st.DrawFn) -> RolloutCluster:
    free = draw(st.booleans())
    shapes = [
        Shape(
            name,
            "v1",
            draw(st.integers(1, 3)),
            draw(surge_free if free else surging),
            gpus=draw(st.integers(0, 2)),
        )
        for name in NAMES
    ]
    need = sum(shape.gpus * shape.replicas for shape in shapes)
    # Surging needs room for all surge pods at once; surge-free has to do with the bare need, or
    # with what the largest edit below asks for.
    room = sum(shape.gpus * shape.limits.max_surge for shape in shapes)
    return RolloutCluster(shapes, capacity=need + room if not free else need, surge_free=free)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.sets(st.sampled_from(NAMES), min_size=1), st.integers(1, 4)),
        st.tuples(st.just("regroup"), st.sampled_from(NAMES), st.sampled_from(GROUPINGS)),
        st.tuples(st.just("resize"), st.sampled_from(NAMES), st.integers(0, 1)),
        st.tuples(st.just("break"), st.sampled_from(NAMES), st.integers(2, 4)),
        st.tuples(st.just("crash"), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("kill"), st.integers(0, 20), st.none()),
        st.tuples(st.just("scale"), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("gateways"), st.booleans(), st.none()),
        st.tuples(st.just("pause"), st.booleans(), st.none()),
        st.tuples(st.just("tick"), st.integers(1, 4), st.none() | st.integers(0, 3)),
    ),
    max_size=14,
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cluster=clusters(), sequence=operations)
def test_any_sequence_keeps_the_promises_and_settles(
    cluster: RolloutCluster, sequence: list[Operation]
) -> None:
    settle(cluster)
    for operation in sequence:
        perform(cluster, operation)
        cluster.tick()
    heal(cluster)
    settle(cluster)
    assert quiet(cluster) == [], "a second look at the same state must change nothing"


@pytest.mark.parametrize("how", ["renamed", "split", "merged"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_pods_of_a_group_that_is_no_more_go_only_as_its_successors_serve(
    how: str, replicas: int
) -> None:
    limits = StepLimits(max_surge=1, max_unavailable=0)
    shapes = [Shape(name, "v1", replicas, limits, gpus=1) for name in NAMES]
    cluster = RolloutCluster(shapes, capacity=3 * replicas + 2, surge_free=False)
    settle(cluster)
    regroup(cluster.shapes, "thinker", how, cluster.first)
    for _ in range(TICKS_TO_SETTLE):
        cluster.tick()
        assert width(cluster) >= replicas, "requests find fewer paths than before"
        if cluster.settled():
            break
    settle(cluster)
    assert quiet(cluster) == []
    assert {one.shape for one in cluster.deployments.values()} == set(cluster.shapes)


def test_pods_of_a_group_that_is_no_more_stay_while_its_successor_is_broken() -> None:
    limits = StepLimits(max_surge=1, max_unavailable=0)
    shapes = [Shape(name, "v1", 2, limits) for name in NAMES]
    cluster = RolloutCluster(shapes, capacity=0, surge_free=False)
    settle(cluster)
    regroup(cluster.shapes, "thinker", "renamed", cluster.first)
    cluster.broken.add(("thinker-b", "v1-0"))
    for _ in range(TICKS_TO_SETTLE):
        cluster.tick()
        assert width(cluster) == 2
    heal(cluster)
    settle(cluster)


def width(cluster: RolloutCluster) -> int:
    """Return how many pods wide all complete paths are together where groups change."""
    wanted, paths = cluster.goal.by_shape, Paths.of(cluster.observed, cluster.revisions)
    kept = {(one.shape, one.revision) for one in wanted.values()}
    own = [
        min((paths.serving[it] for it in one.shapes.items() if it not in kept), default=0)
        for one in cluster.revisions[:-1]
        if paths.complete(one)
    ]
    old = {it for one in cluster.revisions[:-1] for it in one.shapes.items()}
    newest = cluster.revisions[-1]
    new = [paths.serving[it] for it in newest.shapes.items() if it not in old]
    if not own:
        new = [paths.serving[it] for it in newest.shapes.items()]
    return sum(own) + (min(new, default=0) if paths.complete(newest) else 0)


def perform(cluster: RolloutCluster, operation: Operation) -> None:
    """Let a user, a fault or time do something."""
    if operation[0] in ("crash", "kill"):
        harm(cluster.pods(), operation)
        return
    if operation[0] == "regroup":
        regroup(cluster.shapes, operation[1], operation[2], cluster.first)
        return
    if operation[0] in ("edit", "resize", "scale"):
        edit(cluster.shapes, operation, cluster.first)
        return
    match operation:
        case ("break", name, number):
            for one in groups_of(cluster.shapes, name):
                cluster.broken.add((one.name, f"v{number}-{one.gpus}"))
        case ("gateways", answer, _):
            cluster.gateways_answer = answer
        case ("pause", paused, _):
            cluster.paused = paused
        case ("tick", times, writes):
            for _ in range(times):
                cluster.tick(writes)


def edit(shapes: dict[str, Shape], operation: Operation, first: dict[str, Shape]) -> None:
    """Change the object. Never beyond what it was first, which the cluster has room for."""
    match operation:
        case ("edit", names, number):
            for one in (it for name in names for it in groups_of(shapes, name)):
                one.revision = f"v{number}-{one.gpus}"
        case ("resize", name, gpus):
            for one in groups_of(shapes, name):
                one.gpus = 0 if one.name.endswith("-2") else min(gpus, first[name].gpus)
                # What changes pods changes the revision, so no two sizes have the same name.
                one.revision = f"{one.revision[:2]}-{one.gpus}"
        case ("scale", name, replicas):
            for one in groups_of(shapes, name):
                one.replicas = min(replicas, first[name].replicas)


def groups_of(shapes: dict[str, Shape], name: str) -> list[Shape]:
    """Return the shapes that a stage is in now, whatever they are called."""
    return [one for one in shapes.values() if one.name.partition("-")[0] == name]


def regroup(shapes: dict[str, Shape], name: str, how: str, first: dict[str, Shape]) -> None:
    """Give a stage a group of another name, two groups, none but those of others, or its first."""
    rest = [one for one in shapes.values() if one not in groups_of(shapes, name)]
    if how == "merged" and not rest:
        return
    for one in groups_of(shapes, name):
        del shapes[one.name]
    if how == "merged":
        # Its stage is in the pods of another group from now on, which changes those.
        rest[0].revision = f"v9-{rest[0].gpus}"
        return
    suffixes = {"own": ("",), "renamed": ("-b",), "split": ("-1", "-2")}[how]
    for suffix in suffixes:
        gpus = 0 if suffix == "-2" else first[name].gpus
        shapes[name + suffix] = replace(
            first[name], name=name + suffix, revision=f"v1-{gpus}", gpus=gpus
        )


def harm(pods: list[Pod], operation: Operation) -> None:
    """Crash a pod, let a crashed one come back, or take one away."""
    word, index, crashed = operation
    if not pods:
        return
    pod = pods[index % len(pods)]
    if word == "kill":
        pod.terminating = True
    else:
        pod.crashed = crashed


def heal(cluster: RolloutCluster) -> None:
    cluster.broken.clear()
    cluster.gateways_answer, cluster.paused = True, False
    for pod in cluster.pods():
        pod.crashed = False


def settle(cluster: RolloutCluster) -> None:
    for _ in range(TICKS_TO_SETTLE):
        cluster.tick()
        if cluster.settled():
            break
    assert cluster.settled(), "the rollout never comes to an end"
    cluster.reconcile()


def quiet(cluster: RolloutCluster) -> list[object]:
    cluster.reconcile()
    return [one for one in cluster.reconcile() if not isinstance(one, Wait)]
