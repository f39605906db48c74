"""`omnipipe[client]` alone, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from scripts.bootstrap_uv import fetched_uv, uv_in_project, uv_on_path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/client.md"
DOCUMENTED_ADDRESS = "localhost:50050"


def light_client(folder: Path) -> Path:
    """Make the environment; returns its interpreter."""
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder)}
    environment.pop("VIRTUAL_ENV", None)
    words = ("sync", "--quiet", "--frozen", "--no-editable", "--extra", "client")
    uv = uv_on_path() or uv_in_project() or fetched_uv()
    subprocess.run([uv, *words], cwd=ROOT, env=environment, check=True)
    return folder / "bin/python"


def documented_example(address: str) -> str:
    """Return the program in the document for clients, for a gateway at another address."""
    program = DOCUMENT.read_text().partition("```python\n")[2].partition("```")[0]
    assert DOCUMENTED_ADDRESS in program
    return program.replace(DOCUMENTED_ADDRESS, address)
