"""What a newcomer types first ends with speech."""

from __future__ import annotations

import subprocess
import sys
import wave

import pytest

from tests.support.node import ROOT, Node

pytestmark = [pytest.mark.node, pytest.mark.storm, pytest.mark.slow, pytest.mark.timeout(2400)]


def test_the_demonstration_ends_with_speech(node: Node) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "cluster" / "demo.sh"],
        env={**node.environ, "OMNIPIPE_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    node.kubectl("delete", "omni", "qwen3-omni-tiny", "--ignore-not-found")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Normal  Ready" in done.stdout
    for name in ("answer", "openai"):
        with wave.open(str(ROOT / "build" / "demo-k8s" / f"{name}.wav")) as speech:
            assert speech.getnframes() > 0
