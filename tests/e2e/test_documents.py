"""The commands of the page on Kubernetes do what it says, as they stand there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.node import ROOT, Node

pytestmark = [pytest.mark.node, pytest.mark.storm, pytest.mark.slow, pytest.mark.timeout(2400)]

PAGE = ROOT / "docs" / "kubernetes.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
UNTIL_FORWARDED = "until curl -s -o /dev/null http://127.0.0.1:8000/livez; do sleep 0.1; done"
ELSEWHERE = ("make ", "eval ")
"""What `test_demo.py` and the fixture of the node run."""
OTHER_PIPELINE = "qwen3-omni"
"""Shown from a control plane without nodes, by a test of the operator."""


def commands() -> Iterator[str]:
    for block in BLOCK.findall(PAGE.read_text()):
        for command in COMMAND.findall(block):
            if not command.startswith(ELSEWHERE) and OTHER_PIPELINE not in command:
                yield command


def test_every_command_of_the_page_succeeds(node: Node) -> None:
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for command in commands():
        stays = "port-forward" in command
        script.append(f"{command} & {UNTIL_FORWARDED}" if stays else f"( {command} ) </dev/null")
    try:
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=ROOT,
            env=node.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    finally:
        node.kubectl("delete", "omni", "parrot", "--ignore-not-found")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "You said: Hello" in done.stdout
