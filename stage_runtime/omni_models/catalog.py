"""Every pipeline that ships with omnipipe.

A model package that cannot be imported must not make its pipelines look unknown, nor take the other
models down with it: what went wrong is kept and told to whoever asks for a pipeline that is not
there.
"""

from __future__ import annotations

import importlib
from functools import cache

from omni_config.registry import Registry
from omni_config.schema import PipelineConfig

TOPOLOGIES = ("omni_models.qwen3_omni.topology", "omni_models.qwen3_tts.topology")


@cache
def registry() -> Registry:
    """Return the registry of all shipped pipelines; imports their light topology modules only."""
    return load_registry(TOPOLOGIES)


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
