"""Whole calls of tools from their pieces. Pure."""

from __future__ import annotations

from dataclasses import replace

from omni_gateway.chat.events import ToolCallDelta


class CallGathering:
    """Joins the pieces of the calls of one answer."""

    def __init__(self) -> None:
        self._calls: dict[int, ToolCallDelta] = {}

    def add(self, delta: ToolCallDelta) -> None:
        """Take in the next piece."""
        known = self._calls.get(delta.index)
        if known is not None:
            delta = replace(known, arguments=known.arguments + delta.arguments)
        self._calls[delta.index] = delta

    @property
    def calls(self) -> list[ToolCallDelta]:
        """The calls, each as a whole, in their order."""
        return [call for _, call in sorted(self._calls.items())]
