"""Entry point `sglang.srt.platforms`: lets SGLang run on a CPU without AMX or any GPU.

SGLang's own CPU platform calls kernels that need AMX. The bridge chooses this one for stages placed
on the CPU and for no others; on CUDA nothing is overridden.
"""

from __future__ import annotations

import os

PLATFORM_VARIABLE = "SGLANG_PLATFORM"
CPU_PLATFORM = "omnipipe_cpu"


def activate() -> str | None:
    """Return the import path of the platform where it was asked for by name, else None.

    SGLang asks every installed plugin when none is named; saying yes there would take a GPU away.
    """
    if os.environ.get(PLATFORM_VARIABLE) != CPU_PLATFORM:
        return None
    return "omni_runtime.sglang_bridge.cpu_platform.PlainCpu"
