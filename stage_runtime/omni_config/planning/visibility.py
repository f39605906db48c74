"""GPU ids are indices into the launcher's visible devices; this module turns them into devices."""

from __future__ import annotations

from collections.abc import Mapping

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_NONE_VISIBLE = ("", "-1")


def visible_entries(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the entries of CUDA_VISIBLE_DEVICES, null when it is unset or hides every device.

    A launcher from which all devices are hidden runs without CUDA, where ids are not checked.
    """
    entries = tuple(entry.strip() for entry in environ.get(VISIBLE_DEVICES, "").split(","))
    return None if entries[0] in _NONE_VISIBLE else entries


def visible_device(gpu_id: int, environ: Mapping[str, str]) -> str:
    """Return what CUDA_VISIBLE_DEVICES must say for a process that sees only this GPU.

    Raises:
        IndexError: the launcher itself does not see the GPU.
    """
    entries = visible_entries(environ)
    return str(gpu_id) if entries is None else entries[gpu_id]
