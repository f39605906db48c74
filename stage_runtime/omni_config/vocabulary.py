"""Which keys the consumers of `factory.*` and `engine.*` understand, known without importing them.

A stage factory lives in a module that may import torch, so its signature is read from source and
never by importing it. SGLang's `ServerArgs` is kept as data that `scripts/server_args.py` writes
and a test compares with the installed release. Where a vocabulary cannot be read, nothing is
claimed about it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict

from omni_config.rules import LAUNCH_FACTORY_KEYS, PLACEMENT_FACTORY_KEYS
from omni_config.settings import EngineArgs

INJECTED_PARAMETERS = (
    "model_path",
    "server_args_overrides",
    *PLACEMENT_FACTORY_KEYS,
    *LAUNCH_FACTORY_KEYS,
)
"""Factory parameters that are filled for the author, so that nobody is invited to write them."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a stage factory, as its source writes it.

    Attributes:
        annotation: the type, empty when there is none.
        default: the default, null when there is none (the text `None` when the default is null).
        doc: its line under `Args:` in the docstring, empty when there is none.
    """

    name: str
    annotation: str = ""
    default: str | None = None
    doc: str = ""

    @property
    def required(self) -> bool:
        """Whether the factory cannot be called without it."""
        return self.default is None


@dataclass(frozen=True, slots=True)
class FactorySignature:
    """What a stage factory accepts.

    Attributes:
        path: import path of the factory.
        parameters: its named parameters, in order.
        accepts_any: whether it takes arbitrary keywords besides.
    """

    path: str
    parameters: Mapping[str, Parameter]
    accepts_any: bool = False

    def accepts(self, name: str) -> bool:
        """Return whether the factory can be given this keyword."""
        return self.accepts_any or name in self.parameters

    @property
    def settable(self) -> tuple[str, ...]:
        """Names a user may write under `factory.*`."""
        return tuple(name for name in self.parameters if name not in INJECTED_PARAMETERS)


@cache
def factory_signature(path: str) -> FactorySignature | None:
    """Return what the factory at an import path accepts, null when its source cannot be read.

    Packages above the factory's module are imported, the module itself is not.
    """
    module, _, function = path.rpartition(".")
    definitions = _functions(module) if module else None
    if definitions is None or function not in definitions:
        return None
    node = definitions[function]
    docs = _parameter_docs(ast.get_docstring(node) or "")
    parameters = {
        name: Parameter(name, _text(annotation) or "", _text(default), docs.get(name, ""))
        for name, annotation, default in _arguments(node.args)
    }
    return FactorySignature(path, MappingProxyType(parameters), node.args.kwarg is not None)


@cache
def server_args_fields() -> Mapping[str, str]:
    """Return the fields of the pinned SGLang's `ServerArgs`, each with its type as text."""
    return MappingProxyType(_server_args()["fields"])


def server_args_version() -> str:
    """Return the SGLang release that `server_args_fields` describes."""
    return _server_args()["sglang"]


@cache
def engine_keys() -> frozenset[str]:
    """Return every key that `engine.*` understands: declared ones and fields of `ServerArgs`."""
    return frozenset(EngineArgs.model_fields) | frozenset(server_args_fields())


class _ServerArgs(TypedDict):
    sglang: str
    fields: dict[str, str]


@cache
def _server_args() -> _ServerArgs:
    data: _ServerArgs = json.loads(files("omni_config").joinpath("server_args.json").read_text())
    return data


@cache
def _functions(module: str) -> Mapping[str, ast.FunctionDef] | None:
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # importing the packages above runs their code, which may raise anything
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _arguments(
    arguments: ast.arguments,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield name, annotation and default of every parameter that can be passed by name."""
    plain = arguments.args
    first_default = len(arguments.posonlyargs) + len(plain) - len(arguments.defaults)
    for index, argument in enumerate(plain, start=len(arguments.posonlyargs)):
        default = arguments.defaults[index - first_default] if index >= first_default else None
        yield argument.arg, argument.annotation, default
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield argument.arg, argument.annotation, default


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


def _parameter_docs(docstring: str) -> dict[str, str]:
    """Return the text of each entry under `Args:`, continuation lines joined."""
    _, _, section = docstring.partition("Args:\n")
    docs: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        entry = re.fullmatch(r" {4}(\w+): (.+)", line)
        if entry:
            name = entry[1]
            docs[name] = entry[2].strip()
        elif name and line.startswith("      "):
            docs[name] += f" {line.strip()}"
        else:
            break
    return docs
