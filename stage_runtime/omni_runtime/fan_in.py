"""Which payloads a request waits for at a stage, and their merge. Pure.

A stage without `wait_for` runs on the first payload. With it, the payloads of the expected sources
are merged exactly once. Which sources are expected may depend on the request: `wait_for_fn` is
asked with each payload until it answers, and its answer is final, so that the order of arrival
cannot change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from omni_wire.errors import StageFailed
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload

WaitFor = Callable[[RequestKey, str, Payload], Collection[str] | None]
Merge = Callable[[dict[str, Payload]], Payload]


class FanInError(StageFailed):
    """The payloads of one request do not fit what its stage expects; no retry will help."""


@dataclass(frozen=True, slots=True)
class FanInRule:
    """What one stage declares.

    Attributes:
        wait_for: every source a request may wait for; empty when the first payload is the only one.
        wait_for_fn: narrows `wait_for` for one request; None while it cannot know yet.
        merge_fn: merges the payloads, called with exactly the expected sources in declaration
            order.
    """

    wait_for: tuple[str, ...] = ()
    wait_for_fn: WaitFor | None = None
    merge_fn: Merge | None = None


class FanIn:
    """Payloads of one request at one stage."""

    def __init__(self, rule: FanInRule) -> None:
        self._rule = rule
        self._payloads: dict[str, Payload] = {}
        self._expected: frozenset[str] | None = None
        self._merged = False
        if rule.wait_for_fn is None and rule.wait_for:
            self._expected = frozenset(rule.wait_for)

    @property
    def complete(self) -> bool:
        """Whether the merged payload has been given out."""
        return self._merged

    def add(self, source: str, payload: Payload) -> Payload | None:
        """Take the payload of `source`; return the merged payload when it was the last one awaited.

        Raises:
            FanInError: the source is not expected, came twice, or the hook named impossible
                sources.
            Exception: whatever a hook of the author raises.
        """
        if self._merged or source in self._payloads:
            raise FanInError(f"a second payload came from '{source}'")
        if not self._rule.wait_for:
            self._merged = True
            return payload
        self._require(source, frozenset(self._rule.wait_for))
        if self._expected is not None:
            self._require(source, self._expected)
        self._payloads[source] = payload
        if self._expected is None:
            self._ask(source, payload)
        if self._expected is None or self._payloads.keys() != self._expected:
            return None
        return self._merge()

    def _ask(self, source: str, payload: Payload) -> None:
        assert self._rule.wait_for_fn is not None
        answer = self._rule.wait_for_fn(payload.key, source, payload)
        if answer is None:
            return
        expected = frozenset((answer,) if isinstance(answer, str) else answer)
        if not expected or not expected <= frozenset(self._rule.wait_for):
            raise FanInError(
                f"wait_for_fn answered {sorted(expected)}; it must be a non-empty subset of "
                f"{list(self._rule.wait_for)}"
            )
        for seen in self._payloads:
            self._require(seen, expected)
        self._expected = expected

    def _require(self, source: str, allowed: Collection[str]) -> None:
        if source not in allowed:
            raise FanInError(
                f"a payload came from '{source}', but this request waits for {sorted(allowed)}"
            )

    def _merge(self) -> Payload:
        self._merged = True
        ordered: Mapping[str, Payload] = {
            source: self._payloads[source]
            for source in self._rule.wait_for
            if source in self._payloads
        }
        self._payloads = {}
        if self._rule.merge_fn is None:
            return next(iter(ordered.values()))
        return self._rule.merge_fn(dict(ordered))
