"""A checkpoint's folder: its configuration, and the weights of one stage out of many.

A stage opens only the weight files that hold tensors of its own, and of those reads only its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import nn

from omni_config.errors import OmniError
from omni_models.qwen3_omni.snapshot import checkpoint_path
from omni_runtime.weight_share.checkpoint import checkpoint_fact
from omni_runtime.weight_share.modules import filled_module

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"

M = TypeVar("M", bound=nn.Module)


class IncompleteCheckpoint(OmniError):
    """The checkpoint lacks a file or tensors that a stage needs; another download may help."""


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A checkpoint on this machine.

    Attributes:
        path: the folder.
        config: the parsed `config.json`.
    """

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def open(cls, model_path: str) -> CheckpointFolder:
        """Return the checkpoint that `checkpoint_path` finds.

        Raises:
            IncompleteCheckpoint: the folder has no configuration.
        """
        path = checkpoint_path(model_path)
        try:
            config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise IncompleteCheckpoint(f"{path} has no readable config.json") from error
        return cls(path, config)

    @property
    def dtype_name(self) -> str:
        """Name of the dtype it was saved in, such as `bfloat16`."""
        return str(torch_dtype(None, self.config)).removeprefix("torch.")

    def tensors(self, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield name and value of every tensor under `prefix`, the prefix cut off.

        Raises:
            IncompleteCheckpoint: there is none, or a file is missing.
        """
        files: dict[str, list[str]] = {}
        for name, file in self._files().items():
            if name.startswith(prefix):
                files.setdefault(file, []).append(name)
        if not files:
            raise IncompleteCheckpoint(f"{self.path} holds no tensors '{prefix}*'")
        for file, names in files.items():
            with _opened(self.path / file) as content:
                for name in names:
                    yield name.removeprefix(prefix), content.get_tensor(name)

    def weight_files(self, *prefixes: str) -> tuple[str, ...]:
        """Return the names of the files that hold tensors under any of the prefixes."""
        files = {file for name, file in self._files().items() if name.startswith(prefixes)}
        return tuple(sorted(files))

    def load(self, module: M, prefix: str, device: torch.device, dtype: torch.dtype) -> M:
        """Give a module built on the meta device its weights; return it, ready for inference.

        Raises:
            IncompleteCheckpoint: tensors are missing, superfluous or of another shape.
            WeightShareError: they are another copy's of this process, which cannot be had.
        """
        facts = {
            "checkpoint": checkpoint_fact(str(self.path), self.weight_files(prefix)),
            "tensors": f"{prefix}*",
            "dtype": str(dtype),
        }
        return filled_module(
            module, lambda built: self._filled(built, prefix, device, dtype), facts, device
        )

    def _filled(self, module: M, prefix: str, device: torch.device, dtype: torch.dtype) -> M:
        state = {name: value.to(device, dtype) for name, value in self.tensors(prefix)}
        try:
            module.load_state_dict(state, strict=True, assign=True)
        except RuntimeError as error:
            raise IncompleteCheckpoint(f"{self.path}, '{prefix}*': {error}") from error
        module.eval().requires_grad_(False)
        return module

    def _files(self) -> Mapping[str, str]:
        """File of each tensor by name."""
        index = self.path / _INDEX
        if index.is_file():
            weight_map: Mapping[str, str] = json.loads(index.read_text())["weight_map"]
            return weight_map
        with _opened(self.path / _SINGLE) as content:
            return dict.fromkeys(content.keys(), _SINGLE)


def torch_dtype(name: str | None, config: Mapping[str, Any]) -> torch.dtype:
    """Return the dtype called `name`, or the checkpoint's own where no name is given.

    Raises:
        OmniError: no floating-point dtype is called so.
    """
    wanted = name or config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    dtype = getattr(torch, wanted, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OmniError(f"'{wanted}' is no floating-point dtype; use float32, float16 or bfloat16")
    return dtype


def torch_device(
    kind: str | None, gpu_id: int | None, memory_fraction: float | None = None
) -> torch.device:
    """Return the device of a stage: `gpu_id` of `kind`, or the CPU without one.

    Args:
        memory_fraction: share of a CUDA device that this process may take from now on.
    """
    if gpu_id is None:
        return torch.device(kind or "cpu")
    device = torch.device(kind or "cuda", gpu_id)
    if memory_fraction is not None and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(memory_fraction, device)
    return device


def _opened(file: Path) -> Any:  # noqa: ANN401
    if not file.is_file():
        raise IncompleteCheckpoint(f"{file} is missing")
    return safe_open(file, "pt")
