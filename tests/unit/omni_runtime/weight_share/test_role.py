"""The part of a process among copies, read from its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_config.planning.weight_share import RUN_ID_VARIABLE, SHARE_VARIABLE, TIMEOUT_VARIABLE
from omni_runtime.weight_share.errors import BadRole
from omni_runtime.weight_share.role import ATTACH_SECONDS, WeightShareRole, role_of


def test_a_process_without_a_role_shares_nothing() -> None:
    assert role_of({}) is None
    assert role_of({SHARE_VARIABLE: ""}) is None


def test_a_role_names_the_store_and_the_run() -> None:
    environ = {SHARE_VARIABLE: "follower:/run/weights/llm/gpu0", RUN_ID_VARIABLE: "r1"}
    expected = WeightShareRole("follower", Path("/run/weights/llm/gpu0"), "r1", ATTACH_SECONDS)
    assert role_of(environ) == expected


def test_the_wait_for_the_leader_can_be_set() -> None:
    role = role_of({SHARE_VARIABLE: "leader:/store", TIMEOUT_VARIABLE: "2.5"})
    assert role is not None
    assert role.attach_seconds == 2.5


@pytest.mark.parametrize("written", ["leader", "boss:/store", "leader:relative", "follower:"])
def test_a_role_that_cannot_be_read_is_refused(written: str) -> None:
    with pytest.raises(BadRole, match=r"expected leader:/DIRECTORY or follower:/DIRECTORY"):
        role_of({SHARE_VARIABLE: written})


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "inf", "nan"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(seconds: str) -> None:
    with pytest.raises(BadRole, match=TIMEOUT_VARIABLE):
        role_of({SHARE_VARIABLE: "leader:/store", TIMEOUT_VARIABLE: seconds})
