"""A blocking call on a thread that cannot keep the process alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_background(name: str, call: Callable[[], T]) -> T:
    """Return what `call` returns, or raise what it raises, without blocking the event loop.

    Cancelling stops the waiting, not the call: building a stage cannot be interrupted, and a pool's
    threads would be waited for at exit. The thread of a cancelled call dies with the process.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def finish(value: T | None, error: BaseException | None) -> None:
        if result.cancelled():
            return
        if error is None:
            result.set_result(value)  # type: ignore[arg-type]
        else:
            result.set_exception(error)

    def run() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = call()
        except BaseException as error:  # handed to whoever waits
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, value, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await result
