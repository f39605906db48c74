"""How every Typer application of the command line is made."""

from __future__ import annotations

import sys

import typer

from omni_cli.output import is_decorated


def application(help: str | None = None) -> typer.Typer:
    """Return an application whose help is boxed and coloured on a terminal and plain elsewhere."""
    return typer.Typer(
        help=help,
        no_args_is_help=help is not None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich" if is_decorated(sys.stdout) else None,
    )
