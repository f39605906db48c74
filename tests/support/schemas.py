"""JSON schemas of every kind that an API server serves, in the files that kubeconform reads, and
the real kubeconform.

The server's own OpenAPI v3 documents are the source, so that the schemas are of its very version
and hold our own definitions too. Fields that a schema does not name are refused.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from omni_operator.controller.client import Client
from tests.support.cluster_programs import build_program

KEY = "x-kubernetes-group-version-kind"
OPEN = "x-kubernetes-preserve-unknown-fields"
LOCATION = "{{.Group}}-{{.ResourceAPIVersion}}-{{.ResourceKind}}.json"


async def write_schemas(client: Client, directory: Path, kinds: Iterable[tuple[str, str]]) -> None:
    """Write the schemas of kinds, given by API version and name such as `apps/v1`, `Deployment`."""
    wanted = set(kinds)
    for version in {version for version, _ in wanted}:
        place = f"apis/{version}" if "/" in version else f"api/{version}"
        document = await client.request("GET", f"/openapi/v3/{place}")
        schemas = document["components"]["schemas"]
        components = {"schemas": {name: _closed(one) for name, one in schemas.items()}}
        for name, schema in schemas.items():
            for kind in schema.get(KEY, ()):
                if (version, kind["kind"]) not in wanted:
                    continue
                # kubeconform calls the core group by its version.
                group = kind["group"] or kind["version"]
                file = f"{group}-{kind['version']}-{kind['kind'].lower()}.json"
                whole = {"$ref": f"#/components/schemas/{name}", "components": components}
                (directory / file).write_text(json.dumps(whole))


def kubeconform(
    schemas: Path, directory: Path, text: str, skipped: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Return what kubeconform says of each manifest of a YAML text: its `kind`, `name`, `status`
    and `msg`."""
    file = directory / "manifests.yaml"
    file.write_text(text)
    done = subprocess.run(
        [
            build_program("kubeconform"),
            *("-strict", "-verbose", "-output", "json"),
            *("-schema-location", f"{schemas}/{LOCATION}"),
            *("-skip", ",".join(skipped)),
            file,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)["resources"]
    return found


def _closed(schema: Any) -> Any:
    """Return a schema that refuses fields it does not name, as far as it names any."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = dict(_entries(schema))
    if "properties" in schema and not schema.get(OPEN):
        closed.setdefault("additionalProperties", False)
    return closed


def _entries(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "properties":
            # These are names of fields, one of which may be called `properties`.
            yield key, {name: _closed(one) for name, one in value.items()}
        elif key not in ("default", "format"):
            yield key, _closed(value)
