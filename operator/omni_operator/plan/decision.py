"""The one entry: from an object and the live state to actions, status and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omni_operator.plan.world import Decision, Observed, World


def decide(manifest: Mapping[str, Any], observed: Observed, world: World) -> Decision:
    """Return what to do about one object; nothing when all is as wanted."""
    raise NotImplementedError
