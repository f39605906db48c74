"""One builder per GPU at a time, even when a builder dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from omni_runtime.construction_lock import construction_lock
from tests.support.patience import PATIENT_SECONDS

HOLD = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from omni_runtime.construction_lock import construction_lock\n"
    "with construction_lock(Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


def held_elsewhere(file: Path) -> subprocess.Popen[str]:
    """Return a process that holds the lock until its input ends."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def waits_for(file: Path) -> bool:
    """Return whether somebody in this process would have to wait for the lock."""
    import fcntl

    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_a_second_builder_waits_for_the_first(tmp_path: Path) -> None:
    file = tmp_path / "gpu.lock"
    with held_elsewhere(file) as holder:
        assert waits_for(file)
        assert holder.stdin is not None
        holder.stdin.close()
        with construction_lock(file):
            assert holder.wait(PATIENT_SECONDS) == 0


def test_a_dead_builder_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "gpu.lock"
    with held_elsewhere(file) as holder:
        holder.kill()
    with construction_lock(file):
        assert waits_for(file)
    assert not waits_for(file)


def test_without_a_gpu_nothing_is_locked() -> None:
    with construction_lock(None):
        pass
