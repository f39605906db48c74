"""`python -m omni_runtime.pod`: the process groups of one stage container.

A container with one group ends when that does, so that Kubernetes counts and delays restarts; in a
container with several, a group that dies is restarted while the others go on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from omni_config.errors import OmniError
from omni_runtime.logging import configure_logging
from omni_runtime.pod.container import run_container
from omni_runtime.pod.options import parse_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a container; returns the exit status."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    configure_logging("pod", options.log_format)
    try:
        return asyncio.run(run_container(options))
    except OmniError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
