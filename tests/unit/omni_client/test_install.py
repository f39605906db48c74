"""`omnipipe[client]` alone, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.bootstrap_uv import fetched_uv, uv_in_project, uv_on_path

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("fastapi", "kubernetes", "openai", "pydantic", "torch", "typer", "uvicorn", "yaml")
CHECK = f"""
import importlib.util
import omni_client
assert all(getattr(omni_client, name) for name in omni_client.__all__)
print(*[name for name in {HEAVY} if importlib.util.find_spec(name)])
"""


@pytest.mark.slow
def test_the_client_installs_alone(tmp_path: Path) -> None:
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(tmp_path / "venv")}
    environment.pop("VIRTUAL_ENV", None)
    words = ("sync", "--quiet", "--frozen", "--no-editable", "--extra", "client")
    subprocess.run(
        [uv_on_path() or uv_in_project() or fetched_uv(), *words],
        cwd=ROOT,
        env=environment,
        check=True,
    )
    python = tmp_path / "venv/bin/python"
    shown = subprocess.run([python, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split() == []
