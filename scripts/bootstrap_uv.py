"""Print the path of a usable uv, fetching one into the project when there is none.

`make test` has to work on a machine with nothing but python3, make and a package index, where
even pip or venv may be missing. This file therefore uses the standard library only and runs on
any Python from 3.9 on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from urllib.parse import urldefrag, urljoin

UV_VERSION = "0.13.9"
"""The version that wrote uv.lock; an older one on PATH is not trusted to read it."""

TOOL_DIR = Path(__file__).resolve().parent.parent / ".tools" / f"uv-{UV_VERSION}"


def main() -> int:
    print(uv_on_path() or uv_in_project() or fetched_uv())
    return 0


def uv_on_path() -> str | None:
    found = shutil.which("uv")
    return found if found and version_of(found) >= as_numbers(UV_VERSION) else None


def uv_in_project() -> str | None:
    uv = TOOL_DIR / "bin" / "uv"
    return str(uv) if uv.exists() and version_of(str(uv)) else None


def version_of(uv: str) -> tuple[int, ...]:
    """Version of a uv, or () when it does not run: a pyenv shim exists without a uv behind it."""
    result = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"uv (\d+(?:\.\d+)*)", result.stdout)
    return as_numbers(match[1]) if result.returncode == 0 and match else ()


def as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def fetched_uv() -> str:
    print(f"bootstrap: fetching uv {UV_VERSION} into {TOOL_DIR}", file=sys.stderr)
    shutil.rmtree(TOOL_DIR, ignore_errors=True)
    if not install_with_pip():
        install_from_index()
    found = uv_in_project()
    if found is None:
        raise SystemExit("bootstrap: no working uv; install one from https://docs.astral.sh/uv/")
    return found


def install_with_pip() -> bool:
    """Install with pip, which knows the machine's index, proxy and certificates."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
    command += ["--root-user-action=ignore", "--target", str(TOOL_DIR), f"uv=={UV_VERSION}"]
    result = subprocess.run(command, stdout=sys.stderr, check=False)
    return result.returncode == 0


def install_from_index() -> None:
    """Take the wheel from the index's simple page: Debian's python3 has neither pip nor venv."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL")
    page_url = (index or "https://pypi.org/simple").rstrip("/") + "/uv/"
    with urllib.request.urlopen(page_url, timeout=60) as response:
        page = response.read().decode()
    # The musl builds are statically linked and run on every Linux.
    system = "musllinux_1_1" if sys.platform == "linux" else "macosx"
    pattern = rf'href="([^"]*/uv-{re.escape(UV_VERSION)}-[^"]*{system}[^"]*{machine()}\.whl[^"]*)"'
    links = re.findall(pattern, page)
    if not links:
        raise SystemExit(f"bootstrap: {page_url} has no uv {UV_VERSION} for {system} {machine()}")
    url, digest = urldefrag(urljoin(page_url, links[0].replace("&amp;", "&")))
    TOOL_DIR.mkdir(parents=True)
    wheel = TOOL_DIR / "uv.whl"
    with urllib.request.urlopen(url, timeout=300) as response:
        wheel.write_bytes(response.read())
    if digest != "sha256=" + hashlib.sha256(wheel.read_bytes()).hexdigest():
        raise SystemExit(f"bootstrap: {url} does not have the digest that the index gives")
    unpack(wheel)


def machine() -> str:
    name = platform.machine()
    return "aarch64" if sys.platform == "linux" and name == "arm64" else name


def unpack(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith("/scripts/uv"))
        uv = TOOL_DIR / "bin" / "uv"
        uv.parent.mkdir(parents=True)
        uv.write_bytes(archive.read(member))
    uv.chmod(0o755)
    wheel.unlink()


if __name__ == "__main__":
    raise SystemExit(main())
