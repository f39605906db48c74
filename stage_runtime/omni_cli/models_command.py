"""`omni models`: checkpoints that omnipipe makes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.output import line, print_lines
from omni_config.errors import OmniError

app = application(help="Make checkpoints to try omnipipe with.")


class MissingPackage(OmniError):
    """The command needs a package that the installed extras do not bring."""


@app.callback()
def models() -> None:
    """Make checkpoints to try omnipipe with."""


@app.command()
def tiny(
    folder: Annotated[Path, typer.Argument(help="Folder to write; made if missing.")],
    seed: Annotated[int, typer.Option(min=0, help="What all weights follow from.")] = 7,
) -> None:
    """Write a tiny random Qwen3-Omni checkpoint: every file of the real one in 4 MB."""
    try:
        from omni_models.qwen3_omni.tiny import write_tiny_checkpoint
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"making a checkpoint needs the package {error.name}: install omnipipe[runtime]"
        ) from error
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is not a folder")
    write_tiny_checkpoint(folder, seed)
    print_lines([line(f"{folder}: tiny Qwen3-Omni checkpoint, seed {seed}")])
