"""The reactions only a gateway can ask for; everything else is in `omni_wire.errors`."""

from __future__ import annotations

from omni_wire.errors import ServiceError


class TerminalsHookError(ServiceError):
    """The pipeline's `terminal_stages_fn` raised or answered nonsense; the model's author must fix
    it.
    """

    reason = "TERMINALS_HOOK_FAILED"
    status = "INTERNAL"


class SlowReader(ServiceError):
    """The client left more output unread than the gateway keeps; read faster or ask for less."""

    reason = "SLOW_READER"
    status = "RESOURCE_EXHAUSTED"
