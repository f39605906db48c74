"""Where a checkpoint lies on this machine."""

from __future__ import annotations

from pathlib import Path


def checkpoint_path(model_path: str) -> Path:
    """Return the folder of a checkpoint.

    Args:
        model_path: a local directory, or a hub id (`org/name`, `org/name@revision`), which is
            downloaded unless it is in the cache.
    """
    path = Path(model_path).expanduser()
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download

    repository, _, revision = model_path.partition("@")
    return Path(snapshot_download(repository, revision=revision or None))
