"""A pipeline under load to which things happen, and what becomes of its requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support import reliability
from tests.support.cluster_load import Load, ends
from tests.support.node import READY_SECONDS, Node, Pipeline
from tests.support.reliability import Row, row_of

QUIET_SECONDS = 1.0
"""Of undisturbed load before and after what happens."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A pipeline of three groups under load.

    Attributes:
        overrides: those of the object before anything happened.
    """

    node: Node
    pipeline: Pipeline
    load: Load
    overrides: list[dict[str, Any]]

    def during(self, fault: str, happen: Callable[[], object]) -> Row:
        """Let something happen; return what became of requests until all was whole again."""
        self.load.wait_answered(READY_SECONDS)
        began = time.monotonic()
        happen()
        self.pipeline.wait_ready()
        self.load.wait_answered(READY_SECONDS)
        whole = time.monotonic()
        time.sleep(QUIET_SECONDS)
        outcomes = self.load.since(began)
        row = row_of(fault, outcomes, whole - began)
        print(f"\n{fault}: {dict(ends(outcomes))}, whole again after {row.seconds:.1f} s")
        for one in [one for one in outcomes if one.message][:5]:
            print(f"  {one.ended - began:.1f} s: {one.message}")
        reliability.keep(row)
        return row
