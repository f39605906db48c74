"""Requests without pause from several threads while something happens to a cluster."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from omni_client import OmniClient
from omni_wire.errors import DeadlineExceeded, ServiceError

WORKERS = 8
WORD_SAMPLES = 960
"""Samples of a word that the parrot speaks."""


class End(StrEnum):
    """How a request ended."""

    RIGHT = "right"
    WRONG = "wrong"
    FAILED = "failed"
    """By a typed error that says that the same request may succeed."""
    REFUSED = "refused"
    """By a typed error that says that it may not."""
    LOST = "lost"
    """Not within its minute, or by an error without a type."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request.

    Attributes:
        began, ended: of the monotonic clock, in seconds.
        detail: reason of the error, or what is wrong with the answer.
        message: what the error says.
    """

    end: End
    began: float
    ended: float
    detail: str = ""
    message: str = ""


@dataclass(slots=True)
class Load:
    """What became of all requests so far."""

    outcomes: list[Outcome] = field(default_factory=list)

    def since(self, moment: float) -> list[Outcome]:
        """Return the requests that ended after a moment."""
        return [one for one in self.outcomes if one.ended >= moment]

    def wait_answered(self, seconds: float) -> None:
        """Wait until a request that begins now is answered rightly."""
        now = time.monotonic()
        while time.monotonic() - now < seconds:
            if any(one.end is End.RIGHT and one.began > now for one in self.outcomes[-200:]):
                return
            time.sleep(0.02)
        raise AssertionError(f"no right answer in {seconds} s: {ends(self.outcomes[-50:])}")


def ends(outcomes: list[Outcome]) -> Counter[str]:
    """Return how often requests ended in which way."""
    return Counter(one.end + (f": {one.detail}" if one.detail else "") for one in outcomes)


@contextmanager
def steady_load(fault_of: Callable[[int], str]) -> Iterator[Load]:
    """Send requests for the time of the block, at a concurrency of eight.

    Args:
        fault_of: sends the request of this number; returns what is wrong with its answer, if
            anything.
    """
    load, ending = Load(), threading.Event()

    def work(worker: int) -> None:
        number = worker
        while not ending.is_set():
            load.outcomes.append(_outcome(fault_of, number))
            number += WORKERS

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        ending.set()
        for thread in threads:
            thread.join()


@contextmanager
def parrot_load(client: OmniClient) -> Iterator[Load]:
    """Talk to the parrot for the time of the block."""

    def fault_of(number: int) -> str:
        text = f"this is number {number}"
        expected = f"You said: {text}"
        answer = client.chat(text, modalities=["text", "audio"])
        samples = 0 if answer.audio is None else len(answer.audio.samples)
        if answer.text == expected and samples == WORD_SAMPLES * len(expected.split()):
            return ""
        return f"{answer.text!r} with {samples} samples"

    with steady_load(fault_of) as load:
        yield load


def _outcome(fault_of: Callable[[int], str], number: int) -> Outcome:
    began = time.monotonic()

    def outcome(end: End, detail: str = "", message: str = "") -> Outcome:
        return Outcome(end, began, time.monotonic(), detail, message)

    try:
        fault = fault_of(number)
    except DeadlineExceeded as error:
        return outcome(End.LOST, str(error))
    except ServiceError as error:
        if type(error) is ServiceError or error.info.reason == "UNKNOWN":
            return outcome(End.LOST, str(error))
        end = End.FAILED if error.info.retryable else End.REFUSED
        return outcome(end, error.info.reason, error.info.message)
    return outcome(End.WRONG if fault else End.RIGHT, fault)
