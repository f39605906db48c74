"""What the comparison with transformers covers: every pair of conditions that can meet.

A launch is dear, because engines have to start; asking is cheap. So what a launch fixes is a row of
a table, and each launch is asked in several rounds. `uncovered` says which pairs of conditions no
launch and round bring together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["text", "speech", "colocated", "talker"]
Condition: TypeAlias = tuple[str, object]


@dataclass(frozen=True, slots=True)
class Launch:
    """What is fixed when engines start.

    Attributes:
        kind: a pipeline's variant, or the talker's stage alone, which is then told text at the
            test's own pace.
        seed: of the checkpoint.
        retracted: whether engines take rows out of their batch and replay them, every third step.
        chunked: whether engines read prompts in chunks of 16 positions.
        start: tokens before speech starts; None where nobody speaks.
        replicas: of every engine.
    """

    kind: Kind
    seed: int
    retracted: bool
    chunked: bool
    start: int | None
    replicas: int

    def __str__(self) -> str:
        words = [f"seed {self.seed}", self.kind]
        words += ["retracted"] * self.retracted + ["chunked"] * self.chunked
        words += [f"start {self.start}"] * (self.start is not None)
        return " ".join(words + ["replicas"] * (self.replicas > 1))


@dataclass(frozen=True, slots=True)
class Round:
    """How a launch is asked.

    Attributes:
        together: the prompts are asked at once, eight of them, instead of one after another.
        cached: they have been asked before, so that the thinker finds them in its prefix cache.
        penalty: on repeated tokens and codes.
    """

    together: bool
    cached: bool
    penalty: float


LAUNCHES = (
    Launch("text", 1, retracted=True, chunked=False, start=None, replicas=1),
    Launch("speech", 1, retracted=True, chunked=False, start=1, replicas=2),
    Launch("colocated", 1, retracted=False, chunked=True, start=5, replicas=1),
    Launch("talker", 1, retracted=False, chunked=True, start=3, replicas=1),
    Launch("text", 2, retracted=False, chunked=True, start=None, replicas=2),
    Launch("speech", 2, retracted=True, chunked=False, start=5, replicas=1),
    Launch("colocated", 2, retracted=True, chunked=False, start=3, replicas=1),
    Launch("talker", 2, retracted=True, chunked=True, start=1, replicas=1),
    Launch("text", 5, retracted=True, chunked=False, start=None, replicas=1),
    Launch("speech", 5, retracted=True, chunked=False, start=3, replicas=2),
    Launch("colocated", 5, retracted=True, chunked=True, start=5, replicas=1),
    Launch("talker", 5, retracted=False, chunked=True, start=1, replicas=1),
    Launch("text", 8, retracted=True, chunked=False, start=None, replicas=1),
    Launch("speech", 8, retracted=False, chunked=False, start=5, replicas=2),
    Launch("colocated", 8, retracted=False, chunked=True, start=1, replicas=1),
    Launch("talker", 8, retracted=True, chunked=False, start=3, replicas=1),
    Launch("text", 9, retracted=True, chunked=False, start=None, replicas=2),
    Launch("speech", 9, retracted=False, chunked=True, start=1, replicas=1),
    Launch("colocated", 9, retracted=False, chunked=False, start=3, replicas=1),
    Launch("talker", 9, retracted=False, chunked=False, start=5, replicas=1),
)

ROUNDS = (
    Round(together=False, cached=False, penalty=1.0),
    Round(together=False, cached=True, penalty=1.05),
    Round(together=True, cached=False, penalty=1.05),
    Round(together=True, cached=True, penalty=1.0),
)

PROMPT_KINDS = ("text", "image", "audio", "video", "mixed", "turns", "heard video")
ALONE = 3

_LAUNCH_VALUES: dict[str, tuple[object, ...]] = {
    "kind": ("text", "speech", "colocated", "talker"),
    "seed": (1, 2, 5, 8, 9),
    "retracted": (False, True),
    "chunked": (False, True),
    "start": (None, 1, 3, 5),
    "replicas": (1, 2),
}
_ROUND_VALUES: dict[str, tuple[object, ...]] = {
    "together": (False, True),
    "cached": (False, True),
    "penalty": (1.0, 1.05),
}


def rounds_of(launch: Launch) -> tuple[Round, ...]:
    """Return how a launch is asked."""
    # A talker alone has no prefix cache to find anything in.
    return tuple(one for one in ROUNDS if not (launch.kind == "talker" and one.cached))


def prompts_of(launch: Launch, one: Round) -> tuple[str, ...]:
    """Return the kinds of prompts that a round asks: all together, or a few one after another.

    Those few are others for every kind of launch, and for every checkpoint.
    """
    if one.together:
        return PROMPT_KINDS
    first = launch.seed + 2 * _LAUNCH_VALUES["kind"].index(launch.kind)
    return tuple(PROMPT_KINDS[(first + n) % len(PROMPT_KINDS)] for n in range(ALONE))


def uncovered(launches: Iterable[Launch]) -> set[frozenset[Condition]]:
    """Return the pairs of conditions that can meet and do not."""
    met = {
        pair
        for launch in launches
        for one in rounds_of(launch)
        if _can_meet(launch, one)
        for pair in _pairs(launch, one, prompts_of(launch, one))
    }
    possible = {pair for launch, one in _possible() for pair in _pairs(launch, one, PROMPT_KINDS)}
    return possible - met


def _possible() -> Iterator[tuple[Launch, Round]]:
    for launch_values in itertools.product(*_LAUNCH_VALUES.values()):
        launch = Launch(*launch_values)  # type: ignore[arg-type]
        for round_values in itertools.product(*_ROUND_VALUES.values()):
            one = Round(*round_values)  # type: ignore[arg-type]
            if _can_meet(launch, one):
                yield launch, one


def _can_meet(launch: Launch, one: Round) -> bool:
    return not any(
        (
            # Only what speaks can start to.
            (launch.start is None) != (launch.kind == "text"),
            # The colocated variant allows one copy of everything; a stage alone is one process.
            launch.replicas > 1 and launch.kind in ("colocated", "talker"),
            launch.kind == "talker" and one.cached,
            # The last row of a batch is never taken out of it.
            launch.retracted and not one.together,
        )
    )


def _pairs(launch: Launch, one: Round, prompts: Iterable[str]) -> Iterator[frozenset[Condition]]:
    conditions = [
        (field.name, getattr(part, field.name)) for part in (launch, one) for field in fields(part)
    ]
    for prompt in prompts:
        yield from map(frozenset, itertools.combinations([*conditions, ("prompt", prompt)], 2))
