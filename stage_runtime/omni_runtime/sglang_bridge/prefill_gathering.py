"""Whether waiting prompts should wait a little longer, to be prefilled together. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefillGathering:
    """Prompts that arrive close together cost the rows that decode one pause instead of several.

    By a clock, so not for ranks that must decide alike.

    Attributes:
        requests: prompts that go as soon as they are together.
        wait_seconds: longest a prompt waits for the others.
        when_idle: wait even when nothing decodes that a prefill would hold up.
    """

    requests: int
    wait_seconds: float
    when_idle: bool = False

    def waits(self, waiting: int, oldest_seconds: float, decoding: bool) -> bool:
        """Return whether the prompts should wait.

        Args:
            waiting: prompts in the queue, at least one.
            oldest_seconds: for how long the oldest has waited.
            decoding: whether rows are decoding.
        """
        if waiting >= self.requests or oldest_seconds >= self.wait_seconds:
            return False
        return decoding or self.when_idle
