"""Many gloo groups of one process, one thread."""

from __future__ import annotations

import subprocess
import sys

from tests.support.patience import PROGRAM_SECONDS

CODE = """
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch
from torch import distributed

from omni_runtime.sglang_bridge.gloo_loop import share_gloo_loop

share_gloo_loop()
with NamedTemporaryFile() as file:
    distributed.init_process_group("gloo", init_method=f"file://{file.name}", rank=0, world_size=1)
    groups = [distributed.new_group([0], backend="gloo") for _ in range(3)]
    row = torch.ones(2)
    for group in groups:
        distributed.all_reduce(row, group=group)
    gathered = [torch.zeros(2)]
    distributed.all_gather(gathered, row, group=groups[0])
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(gathered[0].tolist(), names.count("gloo_tcp_loop"))
"""


def test_groups_share_one_thread() -> None:
    # In a process of its own: the change is for the whole process.
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=PROGRAM_SECONDS
    )
    assert done.stdout.strip() == "[1.0, 1.0] 1", done.stderr
