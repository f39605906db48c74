"""How much one API key may use: requests at once, and requests per minute. Pure, with a clock."""

from __future__ import annotations

from dataclasses import dataclass

from omni_gateway.access.keys import ApiKey
from omni_gateway.errors import RateLimited

MINUTE = 60.0
BUSY_SECONDS = 1.0
"""After which a key that is at its concurrency may try again."""


@dataclass(slots=True)
class Quota:
    """What one key has used.

    Attributes:
        in_flight: unfinished requests.
        tokens: requests it may still begin at once; refilled evenly over a minute.
    """

    key: ApiKey
    tokens: float
    filled_at: float
    in_flight: int = 0

    @classmethod
    def full(cls, key: ApiKey, now: float) -> Quota:
        """Return the quota of a key that has used nothing."""
        return cls(key, float(key.requests_per_minute or 0), now)

    def begin(self, now: float) -> None:
        """Note a request that begins.

        Raises:
            RateLimited: the key's limits are reached; says when to try again.
        """
        key = self.key
        if key.concurrency is not None and self.in_flight >= key.concurrency:
            raise RateLimited(
                f"'{key.name}' may have {key.concurrency} requests at once",
                retry_after=BUSY_SECONDS,
            )
        if key.requests_per_minute is not None:
            self._take(key.requests_per_minute, now)
        self.in_flight += 1

    def end(self) -> None:
        """Note a request that ended."""
        self.in_flight -= 1

    def limited_by(self, key: ApiKey) -> Quota:
        """Return this quota under the limits of a key that was read again."""
        if key != self.key:
            self.tokens = min(self.tokens, float(key.requests_per_minute or 0))
            self.key = key
        return self

    def _take(self, per_minute: int, now: float) -> None:
        rate = per_minute / MINUTE
        self.tokens = min(per_minute, self.tokens + (now - self.filled_at) * rate)
        self.filled_at = now
        if self.tokens < 1:
            raise RateLimited(
                f"'{self.key.name}' may begin {per_minute} requests a minute",
                retry_after=max(round((1 - self.tokens) / rate, 3), 0.001),
            )
        self.tokens -= 1
