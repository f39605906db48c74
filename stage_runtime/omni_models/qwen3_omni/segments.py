"""Turns of a conversation in a prompt's tokens. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from omni_wire.errors import InvalidRequest

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class RoleConfig(Protocol):
    """What is read of a checkpoint's configuration."""

    im_start_token_id: int
    user_token_id: int
    assistant_token_id: int


@dataclass(frozen=True, slots=True)
class Roles:
    """Tokens that begin a turn and name who speaks."""

    start: int
    user: int
    assistant: int

    @classmethod
    def of(cls, config: RoleConfig) -> Roles:
        """Read the checkpoint's configuration."""
        return cls(config.im_start_token_id, config.user_token_id, config.assistant_token_id)

    def user_mask(self, ids: Ints) -> Mask:
        """Return which tokens belong to turns of the user, start token included."""
        starts = np.where(ids == self.start, np.arange(len(ids)), -1)
        turn = np.maximum(np.maximum.accumulate(starts), 0)
        role = ids[np.minimum(turn + 1, len(ids) - 1)]
        return np.asarray(role == self.user)

    def answer_start(self, ids: Ints) -> int:
        """Return where the answer's turn begins, the last one of the assistant.

        Raises:
            InvalidRequest: the prompt asks for no answer.
        """
        starts = np.flatnonzero((ids[:-1] == self.start) & (ids[1:] == self.assistant))
        if not len(starts):
            raise InvalidRequest("the prompt ends without a turn of the assistant")
        return int(starts[-1])
