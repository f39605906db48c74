"""Write every generated file of the repository, or with --check say which are out of date.

Generated files are committed so that a reader, an image build and a type checker need no
generator; `make check` keeps them honest. A generator is a function that returns what its folder
must hold; to add one, write it and name it in GENERATORS.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from omni_cli.settings_reference import settings_reference
from omni_gateway.http_api.reference import api_reference
from omni_models.catalog import TOPOLOGIES, load_registry
from omni_operator.api.crd import crd_yaml, group_crd, pipeline_crd
from omni_operator.names import GROUP

ROOT = Path(__file__).resolve().parent.parent

Files = dict[Path, str]
"""Content by path relative to the repository's root."""

PROTO_PACKAGE = Path("omni/v1")
STUBS_DIR = Path("stage_runtime/omni_wire/v1")
CRD_DIR = Path("crds")
CHART_CRD_DIR = Path("charts/omnipipe/files/crds")
SETTINGS_PAGE = Path("docs/settings.md")
API_PAGE = Path("docs/api.md")


@dataclass(frozen=True, slots=True)
class Generator:
    name: str
    owns: str
    """Glob of committed files; one that is not produced any more is deleted."""
    produce: Callable[[], Files]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail on drift")
    check_only = parser.parse_args().check
    drifted = [path for generator in GENERATORS for path in drift(generator, write=not check_only)]
    if check_only and drifted:
        print("generated files are out of date; run `make generate`:", file=sys.stderr)
        print("\n".join(f"  {path}" for path in drifted), file=sys.stderr)
        return 1
    names = ", ".join(generator.name for generator in GENERATORS)
    print(f"generated ({names}): {'up to date' if check_only else f'{len(drifted)} changed'}")
    return 0


def drift(generator: Generator, *, write: bool) -> Iterator[Path]:
    wanted = generator.produce()
    existing = {path.relative_to(ROOT) for path in ROOT.glob(generator.owns) if path.is_file()}
    for path in sorted(existing - wanted.keys()):
        yield path
        if write:
            (ROOT / path).unlink()
    for path, content in sorted(wanted.items()):
        target = ROOT / path
        if target.exists() and target.read_text(encoding="utf-8") == content:
            continue
        yield path
        if write:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")


def protobuf_stubs() -> Files:
    protos = sorted((ROOT / "protos" / PROTO_PACKAGE).glob("*.proto"))
    if not protos:
        return {}
    with tempfile.TemporaryDirectory() as out:
        run_protoc(protos, out)
        made = sorted((Path(out) / PROTO_PACKAGE).iterdir())
        files = {STUBS_DIR / path.name: at_home_in_omni_wire(path.read_text()) for path in made}
    files[STUBS_DIR / "__init__.py"] = '"""Stubs generated from protos/omni/v1; do not edit."""\n'
    return files


def run_protoc(protos: list[Path], out: str) -> None:
    scripts = Path(sys.executable).parent
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={ROOT / 'protos'}",
            f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
            *(f"--{kind}_out={out}" for kind in ("python", "grpc_python")),
            *(f"--{kind}_out=quiet:{out}" for kind in ("mypy", "mypy_grpc")),
            *(str(proto) for proto in protos),
        ],
        check=True,
    )


def at_home_in_omni_wire(source: str) -> str:
    """Import sibling stubs from where they live: protoc knows the proto package's path only."""
    return re.sub(r"^((?:from|import) )omni\.v1\b", r"\1omni_wire.v1", source, flags=re.MULTILINE)


def settings_page() -> Files:
    return {SETTINGS_PAGE: settings_reference(load_registry(TOPOLOGIES))}


def api_page() -> Files:
    return {API_PAGE: api_reference()}


def custom_resources() -> Files:
    return {
        CRD_DIR / f"{GROUP}_{crd['spec']['names']['plural']}.yaml": crd_yaml(crd)
        for crd in (pipeline_crd(), group_crd())
    }


def chart_custom_resources() -> Files:
    """The chart's copies: upgraded with it, and kept when it is uninstalled."""
    kept = "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n"
    return {
        CHART_CRD_DIR / path.name: content.replace("metadata:\n", kept, 1)
        for path, content in custom_resources().items()
    }


GENERATORS = (
    Generator("protobuf stubs", f"{STUBS_DIR}/*.py*", protobuf_stubs),
    Generator("settings", str(SETTINGS_PAGE), settings_page),
    Generator("API", str(API_PAGE), api_page),
    Generator("custom resource definitions", f"{CRD_DIR}/*.yaml", custom_resources),
    Generator("chart's definitions", f"{CHART_CRD_DIR}/*.yaml", chart_custom_resources),
)


if __name__ == "__main__":
    raise SystemExit(main())
