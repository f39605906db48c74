"""A device plugin that advertises GPUs that do not exist.

python -m tests.support.fake_gpus FOLDER COUNT      kubelet's device-plugins folder, and how many

A container that asks for some gets their names in FAKE_GPUS, and no device. Kubelet forgets its
plugins and removes their sockets when it starts; the plugin then registers again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

RESOURCE = "nvidia.com/gpu"
VERSION = "v1beta1"
SOCKET = "fake-gpus.sock"
LOOK_SECONDS = 0.5

messages: Any
services: Any
messages, services = grpc.protos_and_services("tests/support/fake_gpus/device_plugin.proto")


class FakeGpus:
    """The service that kubelet calls."""

    def __init__(self, count: int) -> None:
        self.names = [f"fake-gpu-{number}" for number in range(count)]
        self.over = threading.Event()

    def GetDevicePluginOptions(self, request: object, context: object) -> Any:  # noqa: N802
        return messages.DevicePluginOptions()

    def ListAndWatch(self, request: object, context: object) -> Iterator[Any]:  # noqa: N802
        """All are healthy for as long as the plugin serves."""
        devices = [messages.Device(ID=name, health="Healthy") for name in self.names]
        yield messages.ListAndWatchResponse(devices=devices)
        self.over.wait()

    def Allocate(self, request: Any, context: object) -> Any:  # noqa: N802
        """Tell each container which ones it got."""
        return messages.AllocateResponse(
            container_responses=[
                messages.ContainerAllocateResponse(envs={"FAKE_GPUS": ",".join(one.devices_ids)})
                for one in request.container_requests
            ]
        )


def serve_until_forgotten(folder: Path, count: int) -> None:
    """Register with the kubelet that runs now, and serve until it is started anew."""
    plugin = FakeGpus(count)
    server = grpc.server(ThreadPoolExecutor(4))
    services.add_DevicePluginServicer_to_server(plugin, server)
    socket = folder / SOCKET
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    with grpc.insecure_channel(f"unix://{folder / 'kubelet.sock'}") as kubelet:
        services.RegistrationStub(kubelet).Register(
            messages.RegisterRequest(version=VERSION, endpoint=SOCKET, resource_name=RESOURCE),
            timeout=60,
            wait_for_ready=True,
        )
    print(f"registered {count} of {RESOURCE}", flush=True)
    while socket.exists():
        time.sleep(LOOK_SECONDS)
    plugin.over.set()
    server.stop(grace=None).wait()


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    while True:
        try:
            serve_until_forgotten(folder, count)
        except grpc.RpcError as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
