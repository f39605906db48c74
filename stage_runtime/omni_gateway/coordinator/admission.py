"""How many requests may be in flight, and when a refused one should try again."""

from __future__ import annotations

from dataclasses import dataclass

from omni_wire.errors import QueueFull

SMOOTHING = 0.2
"""Weight of the newest interval between two finished requests in the running mean."""

SHORTEST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 30.0


@dataclass(slots=True)
class Admission:
    """Counts admitted requests against a limit; pure, the caller gives the time.

    Attributes:
        limit: most unfinished requests.
        in_flight: admitted and not finished.
    """

    limit: int
    in_flight: int = 0
    _last_finish: float | None = None
    _mean_interval: float | None = None

    def check(self) -> None:
        """Refuse a request that there is no place for.

        Raises:
            QueueFull: with the time after which a place has probably become free.
        """
        if self.in_flight >= self.limit:
            raise QueueFull(
                f"{self.in_flight} requests are in flight", retry_after=self.retry_after()
            )

    def admit(self) -> None:
        """Count a request in; the caller asked `check` first."""
        self.in_flight += 1

    def finish(self, now: float) -> None:
        """Count a request out and learn how often places become free."""
        self.in_flight -= 1
        if self._last_finish is not None:
            interval = now - self._last_finish
            mean = interval if self._mean_interval is None else self._mean_interval
            self._mean_interval = mean + SMOOTHING * (interval - mean)
        self._last_finish = now

    def retry_after(self) -> float:
        """Return seconds after which a place has probably become free; one second while nothing is
        known.
        """
        expected = 1.0 if self._mean_interval is None else self._mean_interval
        return min(max(expected, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)
