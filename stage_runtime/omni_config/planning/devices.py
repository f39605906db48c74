"""What is known about the GPUs a plan would run on; all of it optional.

A laptop, the operator and a test plan without devices. What is not known is not checked, and
decisions that depend on it say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_OLDEST_MPS_CAPABILITY = (7, 0)
_MIG_PREFIX = "MIG-"


@dataclass(frozen=True, slots=True)
class Device:
    """One visible GPU.

    Attributes:
        uuid: physical identity (`GPU-…`, or `MIG-…` for a slice).
        memory_bytes: physical memory, null when unknown.
        compute_capability: major and minor version, null when unknown.
        mig: MIG mode is enabled on the card.
    """

    uuid: str
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    mig: bool = False

    @property
    def mps_obstacle(self) -> str | None:
        """Why no MPS daemon can serve this device; null when one can."""
        if self.uuid.startswith(_MIG_PREFIX):
            return f"{self.uuid} is a MIG device"
        if self.mig:
            return "MIG mode is enabled"
        capability = self.compute_capability
        if capability is not None and capability < _OLDEST_MPS_CAPABILITY:
            return f"compute capability {capability[0]}.{capability[1]} is below 7.0"
        return None


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """The GPUs visible to the launcher.

    Attributes:
        devices: by GPU id, that is by index into the visible devices; may be incomplete.
        visible_count: how many devices are visible, null when unknown.
        has_mps_control: `nvidia-cuda-mps-control` can be started, null when unknown.
    """

    devices: Mapping[int, Device] = field(default_factory=lambda: MappingProxyType({}))
    visible_count: int | None = None
    has_mps_control: bool | None = None

    def memory_bytes(self, gpu_id: int) -> int | None:
        """Return the physical memory of a GPU, null when unknown."""
        device = self.devices.get(gpu_id)
        return None if device is None else device.memory_bytes

    def uuid(self, gpu_id: int) -> str | None:
        """Return the physical identity of a GPU, null when unknown."""
        device = self.devices.get(gpu_id)
        return None if device is None else device.uuid


NO_DEVICES = DeviceTable()
"""Nothing is known: planning for another machine."""
