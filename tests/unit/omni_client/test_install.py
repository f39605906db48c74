"""`omnipipe[client]` alone, in an environment that has nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.light_client import light_client

HEAVY = ("fastapi", "kubernetes", "openai", "pydantic", "torch", "typer", "uvicorn", "yaml")
CHECK = f"""
import importlib.util
import omni_client
assert all(getattr(omni_client, name) for name in omni_client.__all__)
print(*[name for name in {HEAVY} if importlib.util.find_spec(name)])
"""


@pytest.mark.slow
def test_the_client_installs_alone(tmp_path: Path) -> None:
    python = light_client(tmp_path / "venv")
    shown = subprocess.run([python, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split() == []
