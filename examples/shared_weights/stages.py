"""A lookup in a table that is loaded as any module of a stage is.

`filled_module` is all that a stage needs to share its weights: where the plan has no leader for
this process it calls `fill`, as if it were not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from examples.shared_weights.checkpoint import FILE
from omni_runtime.weight_share.checkpoint import checkpoint_fact
from omni_runtime.weight_share.modules import filled_module
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Payload

ROWS_AT_ONCE = 64


def make_engine(
    model_path: str, server_args_overrides: Mapping[str, object] | None = None
) -> Callable[[Payload], Payload]:
    """Load the table and return what looks rows up.

    Args:
        model_path: folder with the checkpoint.
        server_args_overrides: what a real engine would hand to SGLang; here nobody reads it.
    """
    del server_args_overrides
    file = Path(model_path) / FILE
    with safe_open(file, "pt") as content:
        rows, columns = content.get_slice("weight").get_shape()
    with torch.device("meta"):
        table = nn.Embedding(rows, columns)
    # Now that torch has imported what it imports for its first module.
    before = private_bytes()

    def fill(module: nn.Embedding) -> nn.Embedding:
        module.to_empty(device="cpu")
        with safe_open(file, "pt") as content:
            part = content.get_slice("weight")
            for row in range(0, rows, ROWS_AT_ONCE):
                module.weight.data[row : row + ROWS_AT_ONCE] = part[row : row + ROWS_AT_ONCE]
        return module.requires_grad_(False)

    facts = {"checkpoint": checkpoint_fact(model_path, [FILE])}
    table = filled_module(table, fill, facts, torch.device("cpu"))

    def answer(payload: Payload) -> Payload:
        return replace(
            payload,
            data={
                "number": float(table(torch.tensor(_row(payload, rows)))[0]),
                "sum": float(table.weight.sum(dtype=torch.float64)),
                "pid": os.getpid(),
                "private_bytes": private_bytes() - before,
            },
        )

    return answer


def private_bytes() -> int:
    """Return the memory that only this process has, and would have to be written out."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say what memory is private")


def _row(payload: Payload, rows: int) -> int:
    row = payload.request.inputs.get("row") if payload.request is not None else None
    if not isinstance(row, int) or not 0 <= row < rows:
        raise InvalidRequest(f"inputs.row must be a whole number from 0 to {rows - 1}")
    return row
