"""What breaks by itself costs at most the requests it holds, and those fail retryably."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.faults import Scene
from tests.support.parrot import GROUPS

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(2400)]

STAGE_PORTS = "50051:50052"
CUT_SECONDS = 5.0
DNS_SECONDS = 30.0

FIND_GROUP = """
import os, signal
def arguments(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
    except OSError:
        return []
pids = [int(one) for one in os.listdir("/proc") if one.isdigit()]
group = next(pid for pid in pids if b"omni_runtime.group" in arguments(pid))
"""
STOP_GROUP = FIND_GROUP + "os.kill(group, signal.SIGSTOP)\n"
EXHAUST_MEMORY = (
    FIND_GROUP
    + """
open(f"/proc/{group}/oom_score_adj", "w").write("1000")
while os.path.exists(f"/proc/{group}"):
    if os.fork() == 0:
        held = b"x" * (8 << 20)
        signal.pause()
"""
)
"""The kernel ends the process with the highest score first, and every one of these is smaller than
the group."""


@pytest.mark.parametrize(
    "group", [GROUPS[0], *(pytest.param(one, marks=pytest.mark.storm) for one in GROUPS[1:])]
)
def test_a_deleted_pod_fails_its_requests_at_most_retryably(scene: Scene, group: str) -> None:
    row = scene.during(
        f"only pod of group `{group}` deleted",
        lambda: scene.pipeline.kubectl("delete", "pod", *scene.pipeline.pod_names(group)),
    )

    assert row.bad == 0
    assert row.succeeded > 0


@pytest.mark.storm
def test_a_killed_pod_fails_its_requests_at_most_retryably(scene: Scene) -> None:
    row = scene.during(
        "pod killed without a grace period",
        lambda: scene.pipeline.kubectl(
            "delete", "pod", "--grace-period=0", "--force", *scene.pipeline.pod_names("words")
        ),
    )

    assert row.bad == 0


@pytest.mark.storm
def test_deleted_certificates_are_made_again_for_the_next_pod(scene: Scene) -> None:
    def delete() -> None:
        scene.pipeline.kubectl("delete", "secret", f"{scene.pipeline.name}-tls")
        scene.pipeline.kubectl("delete", "pod", *scene.pipeline.pod_names("words"))

    row = scene.during("Secret of certificates and a pod deleted", delete)

    assert row.bad == 0


@pytest.mark.storm
def test_a_container_out_of_memory_is_started_again(scene: Scene) -> None:
    pod = scene.pipeline.pod_names("sound")[0]

    row = scene.during("container out of memory", lambda: _exhaust_memory(scene, pod))

    assert row.bad == 0
    (container,) = scene.pipeline.pods("sound")[0]["status"]["containerStatuses"]
    assert container["lastState"]["terminated"]["reason"] == "OOMKilled"


@pytest.mark.storm
def test_a_stopped_main_loop_is_found_and_ended(scene: Scene) -> None:
    pod = scene.pipeline.pod_names("words")[0]

    def stop() -> None:
        scene.pipeline.run_in(pod, STOP_GROUP)
        _await(lambda: _restarts(scene, "words") == 1, seconds=180)

    row = scene.during("main loop of a stage stopped (SIGSTOP)", stop)

    assert row.bad == 0


@pytest.mark.storm
def test_a_drained_node_lets_requests_finish_and_comes_back(scene: Scene) -> None:
    node = scene.pipeline.pods()[0]["spec"]["nodeName"]

    def drain() -> None:
        scene.node.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data")
        scene.node.kubectl("uncordon", node)

    row = scene.during("node drained and uncordoned", drain)

    assert row.bad == 0


@pytest.mark.storm
def test_cut_connections_between_stages_are_made_again(scene: Scene) -> None:
    def cut() -> None:
        with _dropped("-p", "tcp", "--dport", STAGE_PORTS):
            time.sleep(CUT_SECONDS)

    row = scene.during(f"connections between stages cut for {CUT_SECONDS:.0f} s", cut)

    assert row.bad == 0


@pytest.mark.storm
def test_names_that_do_not_resolve_are_not_missed_by_those_who_know_each_other(
    scene: Scene,
) -> None:
    row = scene.during(
        f"DNS gone for {DNS_SECONDS:.0f} s",
        lambda: _without(scene, "coredns", DNS_SECONDS),
    )

    assert row.failed == row.bad == 0


@pytest.mark.storm
@pytest.mark.parametrize(
    ("program", "seconds"), [("kubelet", 5.0), ("apiserver", 15.0), ("controller-manager", 5.0)]
)
def test_kubernetes_own_programs_restart_unnoticed(
    scene: Scene, program: str, seconds: float
) -> None:
    before = scene.pipeline.pod_names()

    row = scene.during(
        f"{program} gone for {seconds:.0f} s", lambda: _without(scene, program, seconds)
    )

    assert row.failed == row.bad == 0
    assert scene.pipeline.pod_names() == before


def _without(scene: Scene, program: str, seconds: float) -> None:
    scene.node.stop(program)
    try:
        time.sleep(seconds)
    finally:
        scene.node.start(program)
    if program == "apiserver":
        _await(lambda: scene.node.kubectl("get", "--raw", "/readyz") == "ok", seconds=60)


def _exhaust_memory(scene: Scene, pod: str) -> None:
    # The program ends with the container it runs in.
    with pytest.raises(AssertionError):
        scene.pipeline.run_in(pod, EXHAUST_MEMORY)
    _await(lambda: _restarts(scene, "sound") == 1, seconds=60)


def _restarts(scene: Scene, group: str) -> int:
    pods = scene.pipeline.pods(group)
    return sum(one["restartCount"] for pod in pods for one in pod["status"]["containerStatuses"])


def _await(happened: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if happened():
                return
        except AssertionError:
            pass  # the API server is not there
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


@contextmanager
def _dropped(*match: str) -> Iterator[None]:
    """Drop packets between pods for the time of the block."""
    rule = ("FORWARD", *match, "-j", "DROP")
    subprocess.run(["iptables", "-I", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-D", *rule], check=True)
