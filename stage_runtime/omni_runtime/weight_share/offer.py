"""The share of a process, on its way past the factory's keyword arguments.

Whoever builds a stage opens an offer around the factory call; whatever loads a model inside takes
it. A model that takes none loads its own weights, which costs memory and breaks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omni_config.graph import INSTANCE_SUFFIX
from omni_runtime.weight_share.role import LEADER

if TYPE_CHECKING:
    from omni_runtime.weight_share.share import WeightShare


@dataclass(frozen=True, slots=True)
class StageShare:
    """The share of one stage.

    Attributes:
        stage: logical name, the same in every copy.
    """

    share: WeightShare
    stage: str

    @property
    def leads(self) -> bool:
        """Whether this process loads; else it attaches."""
        return self.share.role.kind == LEADER

    @property
    def socket(self) -> Path:
        """Where leader and followers of this stage meet."""
        return self.share.role.store / f"{self.stage}.sock"


_OFFERED: ContextVar[StageShare | None] = ContextVar("weight_share", default=None)


@contextmanager
def offered_weights(instance: str, share: WeightShare | None) -> Iterator[None]:
    """Offer a share to the models built in the block; None offers none."""
    stage = INSTANCE_SUFFIX.sub("", instance)
    token = _OFFERED.set(None if share is None else StageShare(share, stage))
    try:
        yield
    finally:
        _OFFERED.reset(token)


def offered_share() -> StageShare | None:
    """Return the share offered to the model being built, None where there is none."""
    return _OFFERED.get()
