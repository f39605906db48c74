"""The byte budget of an engine, on its way past the factory's keyword arguments.

`engine.kv_cache_bytes` is no argument of SGLang's, so it travels beside the factory call: whoever
builds a stage opens a budget around the call, and the engine that is built inside takes it. A
budget that nobody takes, or that two engines want, is a mistake of the stage's author.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from omni_config.errors import OmniError


class BudgetMisplaced(OmniError):
    """A stage has a byte budget and builds no engine, or more than one."""


class _Budget:
    def __init__(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self.taken = 0


_OPEN: ContextVar[_Budget | None] = ContextVar("kv_cache_bytes", default=None)


@contextmanager
def kv_cache_bytes(stage: str, cache_bytes: int | None) -> Iterator[None]:
    """Offer a budget to the engine built in the block; None offers none.

    Raises:
        BudgetMisplaced: not exactly one engine took it.
    """
    if cache_bytes is None:
        yield
        return
    budget = _Budget(cache_bytes)
    token = _OPEN.set(budget)
    try:
        yield
    finally:
        _OPEN.reset(token)
    if budget.taken != 1:
        raise BudgetMisplaced(
            f"stage '{stage}' sets engine.kv_cache_bytes, but its factory built {budget.taken} "
            "engines instead of one"
        )


def take_kv_cache_bytes() -> int | None:
    """Return the budget offered to the engine being built, None when there is none."""
    budget = _OPEN.get()
    if budget is None:
        return None
    budget.taken += 1
    return budget.cache_bytes
