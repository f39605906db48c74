"""Which part a process plays, as its launcher wrote it into the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omni_config.planning.weight_share import (
    RUN_ID_VARIABLE,
    SHARE_VARIABLE,
    TIMEOUT_VARIABLE,
)
from omni_runtime.weight_share.errors import BadRole

LEADER: Literal["leader"] = "leader"
FOLLOWER: Literal["follower"] = "follower"
Kind = Literal["leader", "follower"]

LEADER_LOST_EXIT = 70
"""Exit status of a follower whose leader ended: nothing is wrong with it, and it starts again."""

ATTACH_SECONDS = 1800.0
"""How long a follower waits for the leader unless told otherwise: loading may take as long."""


@dataclass(frozen=True, slots=True)
class WeightShareRole:
    """The part of one process.

    Attributes:
        store: private directory in which leader and followers meet.
        run_id: of the run they belong to; another run's weights are never taken.
        attach_seconds: how long a follower waits for the leader.
    """

    kind: Kind
    store: Path
    run_id: str
    attach_seconds: float = ATTACH_SECONDS


def role_of(environ: Mapping[str, str]) -> WeightShareRole | None:
    """Return the role that the environment gives, None where there is none.

    Raises:
        BadRole: a variable cannot be read.
    """
    written = environ.get(SHARE_VARIABLE)
    if not written:
        return None
    kind, _, store = written.partition(":")
    if kind not in (LEADER, FOLLOWER) or not store.startswith("/"):
        raise BadRole(
            f"{SHARE_VARIABLE}={written!r}; expected leader:/DIRECTORY or follower:/DIRECTORY"
        )
    return WeightShareRole(kind, Path(store), environ.get(RUN_ID_VARIABLE, ""), _seconds(environ))


def _seconds(environ: Mapping[str, str]) -> float:
    written = environ.get(TIMEOUT_VARIABLE)
    if written is None:
        return ATTACH_SECONDS
    try:
        seconds = float(written)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadRole(f"{TIMEOUT_VARIABLE}={written!r}; expected a number of seconds above 0")
    return seconds
