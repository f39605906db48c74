"""What a rollout promises, through any sequence of edits, failures, reverts and kills.

The promises are judged by the simulated cluster at every step (`tests/support/rollout_cluster`): no
pod goes with requests in flight, paths serve as much as promised, pods and GPUs stay in bounds.
Here sequences are made up, and in the end everything must settle and then be quiet.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_operator.plan.actions import Wait
from omni_operator.plan.policy import StepLimits
from tests.support.rollout_cluster import Pod, RolloutCluster, Shape

NAMES = ("thinker", "talker", "decode")
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


def perform(cluster: RolloutCluster, operation: Operation) -> None:
    """Let a user, a fault or time do something."""
    if operation[0] in ("crash", "kill"):
        harm(cluster.pods(), operation)
        return
    if operation[0] in ("edit", "resize", "scale"):
        edit(cluster.shapes, operation, cluster.first)
        return
    match operation:
        case ("break", name, number):
            cluster.broken.add((name, f"v{number}-{cluster.shapes[name].gpus}"))
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
            for name in names:
                shapes[name].revision = f"v{number}-{shapes[name].gpus}"
        case ("resize", name, gpus):
            shapes[name].gpus = min(gpus, first[name].gpus)
            # What changes pods changes the revision, so no two sizes have the same name.
            shapes[name].revision = f"{shapes[name].revision[:2]}-{shapes[name].gpus}"
        case ("scale", name, replicas):
            shapes[name].replicas = min(replicas, first[name].replicas)


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
