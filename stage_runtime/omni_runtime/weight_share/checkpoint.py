"""Telling one checkpoint from another without reading it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_ALWAYS = ("config.json", "model.safetensors.index.json")


def checkpoint_fact(model_path: str, weight_files: Iterable[str]) -> str:
    """Return the path of a checkpoint with a digest of what its files say of themselves.

    Names, sizes and times of change of the files with the weights: a checkpoint that was replaced
    under a running leader is another one.

    Args:
        model_path: a folder; anything else, such as a hub id, stands for itself.
        weight_files: names inside it.
    """
    folder = Path(model_path)
    if not folder.is_dir():
        return model_path
    digest = hashlib.sha256()
    for name in (*_ALWAYS, *sorted(weight_files)):
        try:
            found = (folder / name).stat()
        except FileNotFoundError:
            continue
        digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return f"{folder.resolve()} ({digest.hexdigest()[:16]})"
