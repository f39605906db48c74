"""SGLang's view of a plain CPU: native torch kernels, no pinned memory, no graphs."""

from __future__ import annotations

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.interface import PlatformEnum, SRTPlatform


class PlainCpu(CpuDeviceMixin, SRTPlatform):
    """Out-of-tree platform: kernels dispatch to their `native` implementations."""

    _enum = PlatformEnum.OOT

    def is_out_of_tree(self) -> bool:
        """Tell SGLang to ask this class instead of its own tables."""
        return True

    def get_default_attention_backend(self) -> str:
        """Return the only backend that needs no compiled kernel."""
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        """Return the name of the implementations written in plain torch."""
        return "native"

    def is_pin_memory_available(self, device: object = None) -> bool:
        """Return False: there is no device to copy to."""
        return False
