"""The same life of a lease with NVIDIA's own control program and a real CUDA context."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from omni_config.planning.mps import CLIENT_TOKEN_VARIABLE
from omni_runtime.launcher.host_facts import MPS_CONTROL, visible_devices
from omni_runtime.mps.control import LOG_VARIABLE, PIPE_VARIABLE
from omni_runtime.mps.daemon import LeaseTimes
from omni_runtime.mps.leasing import CardRequest, leased
from omni_runtime.process_end import process_ended

CLIENT = """
import ctypes, signal
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
print("attached", flush=True)
signal.pause()
"""


@pytest.mark.gpu
async def test_a_client_attaches_and_the_daemon_ends_with_the_lease() -> None:
    if shutil.which(MPS_CONTROL) is None:
        pytest.skip(f"no {MPS_CONTROL} on PATH")
    device = visible_devices().devices[0]
    if device.mps_obstacle:
        pytest.skip(device.mps_obstacle)
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        request = CardRequest(Path(folder) / "state", device.uuid, device.uuid)
        pipe = request.root / request.card / "pipe"
        async with leased([request], "run", LeaseTimes(leave=20)) as (lease,):
            daemon = int((pipe / "nvidia-cuda-mps-control.pid").read_text())
            variables = {
                PIPE_VARIABLE: str(pipe),
                LOG_VARIABLE: str(pipe.parent / "log"),
                "CUDA_VISIBLE_DEVICES": device.uuid,
                CLIENT_TOKEN_VARIABLE: "run/client",
            }
            client = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CLIENT),
                env={**os.environ, **variables},
                stdout=asyncio.subprocess.PIPE,
            )
            assert client.stdout is not None
            assert await client.stdout.readline() == b"attached\n"
            await lease.wait_attached(["run/client"])
            await lease.probe()
            client.send_signal(signal.SIGTERM)
            await client.wait()
        await process_ended(daemon)
        assert os.listdir(request.root) == [f"{request.card}.lock"]
