"""Decides what this machine can test, and never lets a missing requirement pass unseen.

A test names what it needs with a marker. Where the machine lacks it, the test is skipped with the
reason printed. In CI (OMNIPIPE_CI=1, set by .ci/run) any skip is a failure, because a suite that
silently stopped running looks exactly like a suite that passes. Only `gpu` may be skipped there.

Properties are judged by what they find, never by how long a busy machine took. CI tries the same
examples every time, so that it judges the change; every other run looks for new ones.
"""

import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.browser_program import why_no_browser
from tests.support.cluster_programs import (
    build_programs,
    which_cluster,
    why_no_cluster,
    why_no_node,
)

SKIPS_FAIL = os.environ.get("OMNIPIPE_CI") == "1"
MAY_SKIP_IN_CI = "gpu"

settings.register_profile(
    "omnipipe",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=SKIPS_FAIL,
)
settings.load_profile("omnipipe")


def _root_missing() -> str | None:
    return None if os.geteuid() == 0 else "needs to run as root"


def _go_missing() -> str | None:
    return None if shutil.which("go") else "needs the Go toolchain: no `go` on PATH"


def _gpu_missing() -> str | None:
    return None if Path("/dev/nvidiactl").exists() else "needs an NVIDIA GPU: no /dev/nvidiactl"


MISSING: Mapping[str, Callable[[], str | None]] = {
    "root": _root_missing,
    "go": _go_missing,
    "browser": why_no_browser,
    "cluster": why_no_cluster,
    "node": why_no_node,
    "gpu": _gpu_missing,
}
"""For each marker, why its requirement is not met here, or None."""


def pytest_report_header() -> str:
    """Say which Kubernetes API the operator's tests use."""
    return f"kubernetes: {which_cluster()}"


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    reasons = {marker: missing() for marker, missing in MISSING.items()}
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs of Kubernetes before the first test that wants them."""
    wanted = any(
        item.get_closest_marker("cluster") and not item.get_closest_marker("skip")
        for item in session.items
    )
    if wanted and not session.config.option.collectonly:
        build_programs()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and not item.get_closest_marker(MAY_SKIP_IN_CI):
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module may skip itself as a whole, for instance with importorskip."""
    report = yield
    if report.skipped:
        _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not SKIPS_FAIL:
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"a skip is a failure when OMNIPIPE_CI=1: {why}"
