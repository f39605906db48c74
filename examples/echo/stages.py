"""What the stages of the echo pipeline compute: one payload in, one payload out.

A factory may return a plain function; the runtime wraps it into a scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from omni_runtime.scheduler import Scheduler
from omni_runtime.simple_scheduler import SimpleScheduler
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Payload


def make_trim() -> Callable[[Payload], Payload]:
    """Check the request and take its text."""
    return trim


def make_reverse(seconds: float = 0.0, max_concurrency: int = 1) -> Scheduler:
    """Reverse the text.

    Args:
        seconds: how long one request takes, to see queues grow.
        max_concurrency: requests computed at once.
    """

    def reverse(payload: Payload) -> Payload:
        if seconds:
            time.sleep(seconds)
        return replace(payload, data={"text": _text(payload)[::-1]})

    return SimpleScheduler(reverse, max_concurrency=max_concurrency)


def make_answer() -> Callable[[Payload], Payload]:
    """Answer with the text and its length."""
    return answer


def trim(payload: Payload) -> Payload:
    """Return the request's text without blanks around it. Raises InvalidRequest without text."""
    text = payload.request.inputs.get("text") if payload.request is not None else None
    if not isinstance(text, str):
        raise InvalidRequest("inputs.text must be text")
    return replace(payload, data={"text": text.strip()})


def answer(payload: Payload) -> Payload:
    """Return the answer for the client."""
    text = _text(payload)
    return replace(payload, data={"text": text, "length": len(text)})


def _text(payload: Payload) -> str:
    assert isinstance(payload.data, dict)
    text = payload.data["text"]
    assert isinstance(text, str)
    return text
