"""Keeps the memory of messages in the process instead of giving it back after each one.

glibc returns large freed blocks to the kernel at once, and the next message takes them again page
by
page: at half a megabyte per message that costs more than everything else about sending it.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Blocks up to this size come from the heap, which may keep this much unused memory at its end.
_HEAP_BLOCK_BYTES = 4 * 1024 * 1024
_UNUSED_BYTES = 48 * 1024 * 1024


def keep_message_memory() -> bool:
    """Tune the C library of this process; False where it has nothing to tune."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    settings = (
        (_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES),
        (_M_TRIM_THRESHOLD, _UNUSED_BYTES),
    )
    return all([mallopt(setting, value) == 1 for setting, value in settings])
