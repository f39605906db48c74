"""What can go wrong with a lease, by what the caller should do about it."""

from __future__ import annotations

from omni_config.errors import OmniError


class MpsError(OmniError):
    """GPUs cannot be shared through MPS as asked; root of the errors below."""


class MpsRefused(MpsError):
    """The state on disk forbids a lease; someone has to look at it, as the message says."""


class MpsControlFailed(MpsError):
    """The control program failed or did not answer in time."""


class MpsProgramMissing(MpsControlFailed):
    """The control program cannot be executed, so nothing was started."""


class MpsNotAttached(MpsError):
    """A process that should use the daemon never attached to it."""


class MpsUnhealthy(MpsError):
    """The daemon was replaced, is gone or does not answer while clients rely on it."""


class MpsRetained(MpsError):
    """A lease could not be given back cleanly; its state was kept."""
