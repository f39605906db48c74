"""Lets the operator start as `python -m omni_operator`."""

import sys

from omni_operator.main import main

if __name__ == "__main__":
    sys.exit(main())
