"""Reading what a checkpoint says about itself.

Only files that are already on this machine are read: choosing a pipeline must neither download
anything nor wait for a network.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from omni_config.errors import ConfigError, Problem

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_REVISION = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
_CONFIG = "config.json"


def read_checkpoint_config(
    model_path: str, environ: Mapping[str, str] = os.environ
) -> Mapping[str, object]:
    """Return the content of a checkpoint's config.json.

    Args:
        model_path: a local directory, or a hub id, optionally `id@revision`, whose snapshot is in
            the Hugging Face cache already.
        environ: environment that says where the cache is.

    Raises:
        ConfigError: the file is not on this machine, or is no JSON object.
    """
    folder = Path(model_path).expanduser()
    # Unlike Path.is_dir, this says no to a name that no file system can hold.
    if os.path.isdir(folder):
        file = folder / _CONFIG
        if not file.is_file():
            raise _unreadable(f"'{model_path}' has no {_CONFIG}; {_WAY_OUT}")
        return _parse(file)
    hub_id, _, revision = model_path.partition("@")
    if not _HUB_ID.fullmatch(hub_id):
        raise _unreadable(f"'{model_path}' is neither a directory nor a hub id such as org/model")
    cached = _snapshot_file(hub_cache(environ), hub_id, revision or "main")
    if cached is None:
        raise _unreadable(
            f"'{model_path}' is not a local directory, and its {_CONFIG} is not in the hub cache "
            f"{hub_cache(environ)}; nothing is downloaded to choose a pipeline: {_WAY_OUT}"
        )
    return _parse(cached)


_WAY_OUT = "name the pipeline with config_cls in a file, or with --variant"


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Return the folder where Hugging Face keeps snapshots."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"]).expanduser()
    cache = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(environ.get("HF_HOME") or cache).expanduser() / "hub"


def _snapshot_file(cache: Path, hub_id: str, revision: str) -> Path | None:
    """Return config.json of a cached revision, which is a branch, a tag or a commit."""
    if not _REVISION.fullmatch(revision):
        return None
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    reference = repository / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    file = repository / "snapshots" / commit / _CONFIG
    return file if file.is_file() else None


def _parse(file: Path) -> Mapping[str, object]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(f"{file} cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise _unreadable(f"{file} is not JSON: {error.msg}", f"{file}:{error.lineno}") from error
    if not isinstance(content, dict):
        raise _unreadable(f"{file} must hold a JSON object, got {type(content).__name__}")
    return content


def _unreadable(message: str, where: str = "") -> ConfigError:
    return ConfigError([Problem("model_path", message, where=where)])
