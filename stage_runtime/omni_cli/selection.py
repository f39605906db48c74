"""Which pipeline a command line is about, and who chose it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_config.checkpoint import read_checkpoint_config
from omni_config.errors import ConfigError, Problem
from omni_config.registry import PipelineClass, Registry
from omni_config.resolution.body import Body
from omni_config.resolution.document import read_document
from omni_config.resolution.resolve import file_body, pipeline_of
from omni_config.resolution.sources import Source
from omni_models import catalog

TEXT_VARIANT = "text"


@dataclass(frozen=True, slots=True)
class Choice:
    """What the flags say about the pipeline.

    Attributes:
        config: configuration file; its `config_cls` names the class.
        model_path: checkpoint, whose config.json names the architecture.
        variant: one of the pipelines that serve the checkpoint.
        text_only: short for the variant without speech.
    """

    config: str | None = None
    model_path: str | None = None
    variant: str | None = None
    text_only: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The pipeline class, who chose it, and the file that was read for it."""

    pipeline: PipelineClass
    source: Source
    body: Body | None = None


def known_pipelines(modules: Sequence[str] | None) -> Registry:
    """Return the pipelines one can choose from, those of `--pipelines` modules included.

    Raises:
        ConfigError: a named module cannot be imported or lists no pipelines.
    """
    here = str(Path.cwd())
    if modules and here not in sys.path:
        # Last, so that a file lying around can never stand in for an installed module.
        sys.path.append(here)
    return catalog.registry(tuple(modules or ()))


def select_pipeline(choice: Choice, registry: Registry) -> Selection:
    """Return the pipeline that a file, or else a checkpoint and a variant, name.

    Raises:
        ConfigError: flags contradict each other, nothing was given, or nothing fits.
    """
    problems = _contradictions(choice)
    if problems:
        raise ConfigError(problems)
    if choice.config is not None:
        body = file_body(read_document(choice.config))
        return Selection(pipeline_of(body, registry), body.source_of(("config_cls",)), body)
    if choice.model_path is None:
        raise _refused("model_path", "--model-path is required unless --config is set")
    return _for_checkpoint(choice, choice.model_path, registry)


def _contradictions(choice: Choice) -> list[Problem]:
    way_out = "; the file's config_cls chooses the pipeline"
    found = []
    if choice.config is not None and choice.variant is not None:
        found.append(f"--variant cannot be combined with --config{way_out}")
    if choice.config is not None and choice.text_only:
        found.append(f"--text-only cannot be combined with --config{way_out}")
    if choice.text_only and choice.variant not in (None, TEXT_VARIANT):
        found.append(f"--text-only cannot be combined with --variant {choice.variant}")
    return [Problem("config_cls", message) for message in found]


def _for_checkpoint(choice: Choice, model_path: str, registry: Registry) -> Selection:
    variant = TEXT_VARIANT if choice.text_only else choice.variant
    flag = "--text-only" if choice.text_only else f"--variant {variant}"
    try:
        config_json = read_checkpoint_config(model_path)
    except ConfigError:
        if variant is None:
            raise
        # A checkpoint that is not on this machine can still be planned for another one.
        return Selection(registry.by_variant(variant), Source("cli flag", flag))
    pipeline = registry.for_checkpoint(config_json, variant, model_path)
    chosen_by = Source("checkpoint", model_path) if variant is None else Source("cli flag", flag)
    return Selection(pipeline, chosen_by)


def _refused(path: str, message: str) -> ConfigError:
    return ConfigError([Problem(path, message)])
