"""Write the engine vocabulary: the fields of SGLang's ServerArgs, as data.

Reads SGLang's source and never imports it, because importing it takes seconds and needs torch.

    pip download --no-deps sglang==0.5.23 --dest /tmp/sglang
    python scripts/server_args.py /tmp/sglang/sglang-0.5.23-*.whl

The argument is a wheel, or a directory that holds the `sglang` package.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import zipfile
from importlib.resources.abc import Traversable
from pathlib import Path

TARGET = Path(__file__).parents[1] / "stage_runtime/omni_config/server_args.json"
MODULE = "sglang.srt.server_args"


class LayoutChanged(Exception):
    """SGLang declares ServerArgs in a way this script does not know."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "source", type=Path, help="a wheel, or a directory holding the sglang package"
    )
    source = parser.parse_args(arguments).source
    root = open_source(source)
    data = {"sglang": read_version(root), "fields": read_fields(root)}
    TARGET.write_text(json.dumps(data, indent=1) + "\n")
    print(f"{TARGET}: {len(data['fields'])} fields of sglang {data['sglang']}")
    return 0


def open_source(source: Path) -> Traversable:
    """Return the folder that holds the `sglang` package, inside a wheel or on disk."""
    return zipfile.Path(source) if source.suffix == ".whl" else source


def read_version(root: Traversable) -> str:
    """Return the version of the SGLang distribution in a folder."""
    for entry in root.iterdir():
        name, _, rest = entry.name.partition("-")
        if name == "sglang" and rest.endswith(".dist-info"):
            return rest.removesuffix(".dist-info")
    raise LayoutChanged("no sglang-*.dist-info beside the sglang package")


def read_fields(root: Traversable) -> dict[str, str]:
    """Return the public input fields of ServerArgs with their types, as written in the source.

    Since 0.5.2x ServerArgs is assembled from the classes listed in `_INPUT_NAMESPACES`; older
    releases declare the fields on the class itself. Both are read.
    """
    tree = _parse(root, MODULE)
    imported = _imports(tree)
    fields: dict[str, str] = {}
    for name in _namespaces(tree):
        if name not in imported:
            raise LayoutChanged(f"{name} is listed in _INPUT_NAMESPACES but not imported")
        fields |= _class_fields(_parse(root, imported[name]), name)
    fields |= _class_fields(tree, "ServerArgs")
    if not fields:
        raise LayoutChanged(f"{MODULE} declares no field")
    return dict(sorted(fields.items()))


def _parse(root: Traversable, module: str) -> ast.Module:
    return ast.parse(root.joinpath(*f"{module.replace('.', '/')}.py".split("/")).read_text())


def _imports(tree: ast.Module) -> dict[str, str]:
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _namespaces(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "_INPUT_NAMESPACES"
            and isinstance(node.value, ast.List)
        ):
            return [item.id for item in node.value.elts if isinstance(item, ast.Name)]
    return []


def _class_fields(tree: ast.Module, class_name: str) -> dict[str, str]:
    """Return the annotated fields of a class and of its bases in the same module."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if class_name not in classes:
        raise LayoutChanged(f"class {class_name} is not where it was")
    node = classes[class_name]
    fields: dict[str, str] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            fields |= _class_fields(tree, base.id)
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        annotation = _type_of(item.annotation)
        if not item.target.id.startswith("_") and not annotation.startswith("ClassVar"):
            fields[item.target.id] = annotation
    return fields


def _type_of(annotation: ast.expr) -> str:
    """Return `T` of `A[T, help]`, or the annotation itself."""
    if (
        isinstance(annotation, ast.Subscript)
        and isinstance(annotation.value, ast.Name)
        and annotation.value.id in ("A", "Annotated")
        and isinstance(annotation.slice, ast.Tuple)
    ):
        annotation = annotation.slice.elts[0]
    return ast.unparse(annotation)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
