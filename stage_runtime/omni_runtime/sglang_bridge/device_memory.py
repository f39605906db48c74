"""How much memory a device has, and how much of it this process holds."""

from __future__ import annotations

import os
from pathlib import Path

import pynvml
import torch


def device_memory(device: str, gpu_id: int) -> tuple[int, int]:
    """Return the memory of a device and what this process holds of it, in bytes."""
    if device == "cpu":
        return _host_memory()
    total = int(torch.cuda.get_device_properties(gpu_id).total_memory)
    return total, _process_bytes(gpu_id)


def _host_memory() -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return os.sysconf("SC_PHYS_PAGES") * page, resident * page


def _process_bytes(gpu_id: int) -> int:
    """Return what the driver says of this process, or the allocator where the driver is silent.

    Inside a container the driver may count processes by ids of another namespace, and then names
    none that is ours.
    """
    reserved = int(torch.cuda.memory_reserved(gpu_id))
    uuid = f"GPU-{torch.cuda.get_device_properties(gpu_id).uuid}"
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return reserved
    mine = [it.usedGpuMemory for it in running if it.pid == os.getpid() and it.usedGpuMemory]
    return max(reserved, *map(int, mine)) if mine else reserved
