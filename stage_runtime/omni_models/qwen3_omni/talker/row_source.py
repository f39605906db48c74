"""Rows of the talker's inputs: the thinker's embeddings, projected by the talker's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder
from omni_models.qwen3_omni.segments import Ints

if TYPE_CHECKING:
    from omni_models.qwen3_omni.talker.model import OmniTalker

_TABLE = "thinker.model.embed_tokens."


class TalkerRows:
    """Implements `prompt_rows.RowSource` with a loaded talker.

    The thinker's table stays on the host, mapped from the checkpoint's file: of its hundreds of
    megabytes a request touches a few hundred rows.

    Args:
        folder: the checkpoint.
        model: the talker, whose device and dtype the rows take.
    """

    def __init__(self, folder: CheckpointFolder, model: OmniTalker) -> None:
        ((_, self._table),) = folder.tensors(_TABLE)
        self._model = model
        weight = model.get_input_embeddings().weight
        self._device, self._dtype = weight.device, weight.dtype

    def text(self, ids: Ints) -> torch.Tensor:
        """Return projected embeddings of text tokens, [tokens, hidden]."""
        rows = self._table[torch.from_numpy(np.ascontiguousarray(ids))]
        out: torch.Tensor = self._model.text_projection(rows.to(self._device, self._dtype))
        return out

    def media(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return projected hidden rows of the thinker, [rows, hidden]."""
        out: torch.Tensor = self._model.hidden_projection(hidden.to(self._device, self._dtype))
        return out

    def no_media(self, count: int) -> torch.Tensor:
        """Return what stands for media whose hidden rows are not sent, [count, hidden]."""
        width = self._model.hidden_projection.linear_fc1.in_features
        return self.media(torch.zeros(count, width))

    @torch.no_grad()
    def codes(self, ids: Ints) -> torch.Tensor:
        """Return embeddings of first codes, [codes, hidden]."""
        index = torch.from_numpy(np.ascontiguousarray(ids)).to(self._device)
        out: torch.Tensor = self._model.get_input_embeddings()(index)
        return out
