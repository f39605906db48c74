"""Where the result of a request goes from a stage. Pure.

Every hook here is the author's code: it may raise, and then its request fails and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from omni_wire.errors import StageFailed
from omni_wire.messages import Payload

Route = Callable[[Payload], str | Collection[str] | Mapping[str, Payload]]
Project = Callable[[Payload], Payload]
DoneTargets = Callable[[Payload], Collection[str]]


class RoutingError(StageFailed):
    """A hook or a scheduler named a stage that this one does not send to."""


@dataclass(frozen=True, slots=True)
class Routes:
    """What one stage declares about its output.

    Attributes:
        next: stages that may receive the payload; empty on a terminal stage.
        route_fn: chooses among `next` for one request, and may give each target a payload of its
            own.
        project_payload: trims the payload per target.
        stream_to: stages that may receive rows.
        stream_done_to_fn: chooses among `stream_to` who learns that the rows have ended; all when
            None.
    """

    next: tuple[str, ...] = ()
    route_fn: Route | None = None
    project_payload: Mapping[str, Project] = field(default_factory=dict)
    stream_to: tuple[str, ...] = ()
    stream_done_to_fn: DoneTargets | None = None

    @property
    def terminal(self) -> bool:
        """Whether the payload leaves the pipeline here."""
        return not self.next

    def payloads(self, payload: Payload) -> list[tuple[str, Payload]]:
        """Return each target with its payload, in declaration order; empty on a terminal stage.

        Raises:
            RoutingError: the route is empty or names a stage outside `next`.
            Exception: whatever a hook of the author raises.
        """
        if self.terminal:
            return []
        chosen = self._chosen(payload)
        strangers = sorted(set(chosen) - set(self.next))
        if strangers or not chosen:
            raise RoutingError(
                f"route_fn chose {sorted(chosen)}; it must be a non-empty subset of "
                f"{list(self.next)}"
            )
        return [
            (target, self._projected(target, chosen[target]))
            for target in self.next
            if target in chosen
        ]

    def done_targets(self, payload: Payload) -> tuple[str, ...]:
        """Return the stages that learn that the stream of this request ended, in declaration order.

        Raises:
            RoutingError: the hook names a stage outside `stream_to`.
            Exception: whatever the hook raises.
        """
        if self.stream_done_to_fn is None or not self.stream_to:
            return self.stream_to
        answer = self.stream_done_to_fn(payload)
        chosen = {answer} if isinstance(answer, str) else set(answer)
        if not chosen <= set(self.stream_to):
            raise RoutingError(
                f"stream_done_to_fn chose {sorted(chosen)}; it must be a subset of "
                f"{list(self.stream_to)}"
            )
        return tuple(target for target in self.stream_to if target in chosen)

    def require_stream_target(self, target: str | None) -> None:
        """Check the target of a step's rows; None means the client.

        Raises:
            RoutingError: rows for the client on a stage that is not terminal, or for a stage
                outside `stream_to`.
        """
        if target is None and not self.terminal:
            raise RoutingError(
                "rows without a target are for the client; only a terminal stage has it"
            )
        if target is not None and target not in self.stream_to:
            raise RoutingError(
                f"rows for '{target}', but this stage streams to {list(self.stream_to)}"
            )

    def _chosen(self, payload: Payload) -> Mapping[str, Payload]:
        if self.route_fn is None:
            return dict.fromkeys(self.next, payload)
        answer = self.route_fn(payload)
        if isinstance(answer, str):
            return {answer: payload}
        if isinstance(answer, Mapping):
            return answer
        return dict.fromkeys(answer, payload)

    def _projected(self, target: str, payload: Payload) -> Payload:
        project = self.project_payload.get(target)
        return payload if project is None else project(payload)
