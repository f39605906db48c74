"""Install what tests and `make cluster` need of the system's own packages.

    python3 scripts/packages.py PURPOSE…     browser, node

Nothing is downloaded as a binary: the browser and the container programs are those of the
distribution. Needs Debian or Ubuntu, and root where something is missing.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PURPOSES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "browser": {"chromium": ("chromium", "chromium-browser", "google-chrome")},
    "node": {
        "containerd": ("containerd",),
        "runc": ("runc",),
        "containernetworking-plugins": ("/usr/lib/cni/bridge",),
        "iptables": ("iptables",),
        "conntrack": ("conntrack",),
        "iproute2": ("ip",),
        "openssl": ("openssl",),
        "curl": ("curl",),
        "gcc": ("cc",),
        "libc6-dev": ("/usr/include/stdlib.h",),
        "buildah": ("buildah",),
        "mmdebstrap": ("mmdebstrap",),
    },
}
"""For each purpose its packages, each with signs, programs or files: any shows that it is there."""


def main() -> int:
    wanted = missing_packages(sys.argv[1:])
    if not wanted:
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"missing; install as root: {' '.join(wanted)}", file=sys.stderr)
        return 1
    print(f"packages: installing {' '.join(wanted)}", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *wanted]):
        # Standard output belongs to whoever calls.
        subprocess.run(
            ["apt-get", "--quiet", "--quiet", *words],
            env=environment,
            check=True,
            stdout=sys.stderr.fileno(),
        )
    return 0


def missing_packages(purposes: Sequence[str]) -> list[str]:
    """Return the packages that the purposes need and this machine lacks."""
    return [
        package
        for purpose in purposes
        for package, signs in PURPOSES[purpose].items()
        if not any(map(_is_there, signs))
    ]


def _is_there(sign: str) -> bool:
    return Path(sign).exists() if sign.startswith("/") else shutil.which(sign) is not None


if __name__ == "__main__":
    raise SystemExit(main())
