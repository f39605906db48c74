"""An event loop whose clock moves only when nothing else is left to do: hours pass at once, and
what is due at the same moment always comes in the same order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

Coroutines = Callable[..., Coroutine[Any, Any, None]]


def in_virtual_time(test: Coroutines) -> Callable[..., None]:
    """Run an asynchronous test on such a loop."""

    def run(*arguments: Any) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(test(*arguments))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        return self._now

    def _pass(self, seconds: float) -> None:
        self._now += seconds


class _Selector(selectors.SelectSelector):
    """Never waits: what the loop would have slept passes on its clock."""

    def __init__(self, passed: Callable[[float], None]) -> None:
        super().__init__()
        self._passed = passed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits for something that will never happen")
        self._passed(max(0.0, timeout))
        return super().select(0)
