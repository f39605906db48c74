"""An engine on the CPU neither compiles nor imports the compiler."""

from __future__ import annotations

import subprocess
import sys

from tests.support.patience import PROGRAM_SECONDS

CODE = """
import sys
from omni_runtime.sglang_bridge.no_compiler import leave_uncompiled
leave_uncompiled()
import torch

def double(x):
    return 2 * x

assert torch.compile(double) is double
assert torch.compile(dynamic=True)(double) is double
assert torch.compile(model=double, mode="max-autotune") is double
print([name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))])
"""


def test_functions_stay_as_they_are_written() -> None:
    # In a process of its own: the change is for the whole process.
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    assert done.stdout.strip() == "[]"
