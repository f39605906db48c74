"""What this machine has: CPUs it may use and GPUs, found without creating a CUDA context.

The CUDA driver is asked in a short process of its own: it alone knows the order of devices, and a
launcher that had initialised it would hold driver state for as long as it runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from omni_config.errors import OmniError
from omni_config.planning.devices import Device, DeviceTable

MPS_CONTROL = "nvidia-cuda-mps-control"
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_TIMEOUT_SECONDS = 60.0


class DeviceQueryFailed(OmniError):
    """This machine has a CUDA driver that does not answer."""


def usable_cpus(quota_file: Path = _CGROUP_QUOTA) -> int:
    """Return how many CPUs affinity and cgroup quota leave to this process, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text().split()
    except OSError:
        return count
    return count if quota == "max" else max(1, min(count, int(quota) // int(period)))


def visible_devices() -> DeviceTable:
    """Return the GPUs this process may use; unknown as a whole without a CUDA driver.

    Raises:
        DeviceQueryFailed: there is a driver, but it cannot be asked.
    """
    answer = _run([sys.executable, "-m", "omni_runtime.launcher.cuda_devices"])
    found = json.loads(answer)
    has_mps = shutil.which(MPS_CONTROL) is not None
    if found is None:
        return DeviceTable(has_mps_control=has_mps)
    return device_table(found, _mig_modes(), has_mps)


def device_table(
    found: list[dict[str, int | str]], mig_modes: Mapping[str, bool], has_mps_control: bool
) -> DeviceTable:
    """Return the device table of what the driver reported.

    Args:
        mig_modes: for each physical card whether MIG mode is on; a device that is no physical card
            is a MIG slice of one.
    """
    devices = {}
    for gpu_id, each in enumerate(found):
        uuid = str(each["uuid"])
        slice_of_card = bool(mig_modes) and f"GPU-{uuid}" not in mig_modes
        devices[gpu_id] = Device(
            uuid=f"{'MIG' if slice_of_card else 'GPU'}-{uuid}",
            memory_bytes=int(each["memory_bytes"]),
            compute_capability=(int(each["major"]), int(each["minor"])),
            mig=mig_modes.get(f"GPU-{uuid}", False),
        )
    return DeviceTable(devices, visible_count=len(devices), has_mps_control=has_mps_control)


def _mig_modes() -> dict[str, bool]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    answer = _run([program, "--query-gpu=uuid,mig.mode.current", "--format=csv,noheader"])
    rows = (line.partition(",") for line in answer.splitlines() if line.strip())
    return {uuid.strip(): mode.strip() == "Enabled" for uuid, _, mode in rows}


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        raise DeviceQueryFailed(f"{' '.join(argv)}: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise DeviceQueryFailed(f"{' '.join(argv)} did not answer in time") from error
    return done.stdout
