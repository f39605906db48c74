"""The example that chats without a model, started as a user starts it, for tests without a loop."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.patience import PROGRAM_SECONDS

ROOT = Path(__file__).parents[2]
COMMAND = (
    str(Path(sys.executable).with_name("omni")),
    *("up", "--config", "examples/chat/pipeline.yaml"),
    *("--pipelines", "examples.chat.topology", "--port", "0"),
)

_READY = re.compile(r"ready in .* (http://\S+)$")


@contextmanager
def chat_pipeline() -> Iterator[str]:
    """Run the pipeline; yields the address of its HTTP API."""
    with subprocess.Popen(
        COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield _address(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PROGRAM_SECONDS)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := _READY.search(line.rstrip()):
            return found[1]
    raise AssertionError("".join(lines))
