"""`omni key`: make an API key; the key is shown once, its hash is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omni_cli.application import application
from omni_config.errors import OmniError
from omni_gateway.access.keys import ApiKey, digest_of, new_key, read_keys

app = application()

OWNER_ONLY = 0o600


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="Whose key it is, in logs and metrics.")],
    file: Annotated[Path, typer.Option(help="File of a gateway's --api-keys; made when absent.")],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Most unfinished requests at once.")
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Most requests begun in a minute.")
    ] = None,
) -> None:
    """Make an API key and add its hash to a file, which gateways read again by themselves."""
    if name.split() != [name] or "#" in name:
        raise OmniError(f"a name is one word without '#', got '{name}'")
    if file.exists() and name in {known.name for known in read_keys(file).values()}:
        raise OmniError(f"{file} has a key named '{name}'; remove its line to replace it")
    made = new_key()
    line = ApiKey(name, digest_of(made), concurrency, requests_per_minute).line
    file.touch(OWNER_ONLY)
    with file.open("a") as out:
        out.write(f"{line}\n")
    typer.echo(made)
