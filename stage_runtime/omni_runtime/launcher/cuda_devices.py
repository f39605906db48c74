"""Prints the CUDA devices visible to a process as JSON, or null without a CUDA driver.

Run as `python -m omni_runtime.launcher.cuda_devices`. Initialising the driver creates no context.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid

_NO_DEVICE = 100
_COMPUTE_MAJOR = 75
_COMPUTE_MINOR = 76


class _Uuid(ctypes.Structure):
    _fields_ = (("value", ctypes.c_ubyte * 16),)


def main() -> int:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        print("null")
        return 0
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        print("[]")
        return 0
    if status != 0:
        print(f"cuInit failed with {status}", file=sys.stderr)
        return 1
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    print(json.dumps([_describe(cuda, ordinal) for ordinal in range(count.value)]))
    return 0


def _describe(cuda: ctypes.CDLL, ordinal: int) -> dict[str, int | str]:
    device, memory, identity = ctypes.c_int(), ctypes.c_size_t(), _Uuid()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    cuda.cuDeviceGetUuid_v2(ctypes.byref(identity), device)
    return {
        "uuid": str(uuid.UUID(bytes=bytes(identity.value))),
        "memory_bytes": memory.value,
        "major": _attribute(cuda, _COMPUTE_MAJOR, device),
        "minor": _attribute(cuda, _COMPUTE_MINOR, device),
    }


def _attribute(cuda: ctypes.CDLL, attribute: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return value.value


if __name__ == "__main__":
    sys.exit(main())
