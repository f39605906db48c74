"""Install the Chromium that the page is tested with, from the system's own packages.

The driver of the tests downloads no browser: what runs is the browser of the distribution. Needs
Debian or Ubuntu, and root where Chromium is missing.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    if any(map(shutil.which, NAMES)):
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print("Chromium is missing: install the package `chromium`", file=sys.stderr)
        return 1
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "--quiet", "--quiet", *words], env=environment, check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
