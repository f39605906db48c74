"""What can be wrong with shared weights."""

from __future__ import annotations

from omni_config.errors import OmniError


class WeightShareError(OmniError):
    """Weights cannot be shared as the plan says."""


class BadRole(WeightShareError):
    """The variables that give a process its role cannot be read."""


class UnsafeStore(WeightShareError):
    """The directory where the processes meet is not private to this user."""


class LeaderAbsent(WeightShareError):
    """The leader did not offer its weights in time."""


class LeaderLost(WeightShareError):
    """The leader ended while a follower was attaching, or refused it."""


class WeightsDiffer(WeightShareError):
    """The leader holds other weights than this process would load."""


class CannotShare(WeightShareError):
    """A module keeps something outside its parameters that a follower could not get."""
