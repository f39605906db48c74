"""Which versions of the wire two processes can use together.

A build speaks its own version and the one before, so that a roll-out may mix neighbours. Version 2
added shared memory between processes of one host; version 1 is the same without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from omni_wire.errors import VersionMismatch

WIRE_VERSION = 2
# First version with shared memory.
SHARED_MEMORY_VERSION = 2


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions that one process speaks."""

    newest: int = WIRE_VERSION
    oldest: int = WIRE_VERSION - 1

    def agree(self, other: Versions) -> int:
        """The newest version that both speak.

        Raises:
            VersionMismatch: there is none.
        """
        version = min(self.newest, other.newest)
        if version < max(self.oldest, other.oldest):
            raise VersionMismatch(
                f"wire versions {other.oldest} to {other.newest} are not spoken here, "
                f"{self.oldest} to {self.newest} are"
            )
        return version
