"""Every pipeline that this installation knows.

Some ship with omnipipe, some with other installed packages, some are named on a command line.

A model package that cannot be imported must not make its pipelines look unknown, nor take the other
models down with it: what went wrong is kept and told to whoever asks for a pipeline that is not
there. A module that a user names is different: it was asked for, so its failure is an error.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points

from omni_config.errors import ConfigError, Problem
from omni_config.registry import Registry
from omni_config.schema import PipelineConfig

TOPOLOGIES = ("omni_models.qwen3_omni.topology", "omni_models.qwen3_tts.topology")
ENTRY_POINT_GROUP = "omnipipe.pipelines"
"""Entry points of other packages; each names a topology module, as TOPOLOGIES does."""


@cache
def registry(modules: tuple[str, ...] = ()) -> Registry:
    """Return the registry of all pipelines; imports light topology modules only.

    Args:
        modules: topology modules that the user named, each with a `PIPELINES`. Never names from a
            file: importing a module runs its code.

    Raises:
        ConfigError: a named module cannot be imported or lists no pipelines.
    """
    installed = tuple(point.value for point in entry_points(group=ENTRY_POINT_GROUP))
    names = tuple(dict.fromkeys((*TOPOLOGIES, *installed, *modules)))
    try:
        found = load_registry(names)
    except ValueError as error:
        raise ConfigError([Problem("", f"--pipelines {', '.join(modules)}: {error}")]) from error
    broken = [name for name in modules if name in found.broken]
    if broken:
        raise ConfigError([Problem("", _unusable(name, found.broken[name])) for name in broken])
    return found


def _unusable(module: str, cause: str) -> str:
    return f"--pipelines {module}: no pipelines can be loaded from it: {cause}"


def load_registry(modules: tuple[str, ...]) -> Registry:
    """Return a registry of the pipelines that the given topology modules list in `PIPELINES`."""
    classes: list[type[PipelineConfig]] = []
    broken: dict[str, str] = {}
    for module in modules:
        try:
            classes += importlib.import_module(module).PIPELINES
        except Exception as error:  # the cause may be anything a module does at import
            broken[module] = f"{type(error).__name__}: {error}"
    return Registry(classes, broken=broken)
