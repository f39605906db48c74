"""From sources to a configuration that knows who set each value.

Resolving reads its arguments and nothing else. It reports every problem at once, and each problem
names the path and the place it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from omni_config.consumer_keys import unknown_keys
from omni_config.errors import ConfigError, Problem
from omni_config.planning.instances import device_override_warnings
from omni_config.registry import Registry
from omni_config.resolution.body import Body, body_patches, config_class_name
from omni_config.resolution.document import Document
from omni_config.resolution.grammar import Grammar, grammar_of
from omni_config.resolution.merge import Merge, conflicts
from omni_config.resolution.paths import Path
from omni_config.resolution.provenance import Trace
from omni_config.resolution.sources import Layer, Patch, Source
from omni_config.resolution.words import broadcast_patches, flag_patch, value_patch, word_patches
from omni_config.schema import PipelineConfig


@dataclass(frozen=True, slots=True)
class Override:
    """One `spec.overrides` entry: a dotted path and a typed value."""

    path: str
    value: object
    source: Source


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything a user may bring.

    Attributes:
        body: the file's or the object's settings.
        profiles: bodies below it, in the order they are named.
        words: dotted flags as they stand on the command line.
        model_path: `--model-path`.
        mem_fraction_static: `--mem-fraction-static`, for every engine stage.
        overrides: dotted overrides of an object.
    """

    body: Body | None = None
    profiles: tuple[Body, ...] = ()
    words: tuple[str, ...] = ()
    model_path: str | None = None
    mem_fraction_static: float | None = None
    overrides: tuple[Override, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """A resolved configuration with the history of every touched path."""

    config: PipelineConfig
    traces: dict[Path, Trace]
    warnings: tuple[str, ...] = field(default=())


def file_body(document: Document) -> Body:
    """Return a YAML file as the file layer."""
    return Body(
        document.body, Source("yaml file", document.origin), Layer.FILE, marks=document.marks
    )


def profile_body(document: Document) -> Body:
    """Return a YAML file as a platform team's defaults, below the file layer."""
    return Body(
        document.body, Source("profile", document.origin), Layer.PROFILE, marks=document.marks
    )


def pipeline_of(body: Body, registry: Registry) -> type[PipelineConfig]:
    """Return the class that a body names.

    Raises:
        ConfigError: the body names none, or one that is not registered.
    """
    if "config_cls" not in body.values:
        message = f"{body.title} must name its pipeline class in config_cls"
        raise ConfigError([Problem("config_cls", message)])
    name = config_class_name(body)
    where = body.source_of(("config_cls",)).where
    if name is None:
        message = f"config_cls must be text, got {body.values['config_cls']!r}"
        raise ConfigError([Problem("config_cls", message, where)])
    return registry.by_name(name)


def resolve(pipeline: type[PipelineConfig], sources: Sources) -> Resolution:
    """Resolve a pipeline class against every source.

    Raises:
        ConfigError: with every problem of every source.
    """
    patches, problems = _patches(pipeline, sources)
    problems += conflicts(patches)
    patches.sort(key=lambda patch: patch.rank)
    model_path = _baseline_model_path(pipeline, patches)
    if model_path is None:
        problems.append(Problem("model_path", "model_path is required; write it, or --model-path"))
    merge = Merge(pipeline, model_path or "unknown")
    for patch in patches:
        merge.apply(patch)
    merge.drop_idle_budgets()
    config = merge.build(problems)
    if _derive(config, merge):
        config = merge.build()
    warnings = (
        *(str(problem) for problem in unknown_keys(config)),
        *device_override_warnings(config),
    )
    return Resolution(config, merge.tracer.traces(), warnings)


def _patches(pipeline: type[PipelineConfig], sources: Sources) -> tuple[list[Patch], list[Problem]]:
    grammar = grammar_of(pipeline)
    patches: list[Patch] = []
    problems: list[Problem] = []
    for body in (*sources.profiles, *([sources.body] if sources.body else [])):
        found, refused = body_patches(body, grammar)
        patches += found
        problems += refused
    found, refused = _flag_patches(grammar, sources)
    return patches + found, problems + refused


def _flag_patches(grammar: Grammar, sources: Sources) -> tuple[list[Patch], list[Problem]]:
    patches: list[Patch] = []
    problems: list[Problem] = []
    if sources.model_path is not None:
        patches.append(flag_patch("model_path", sources.model_path, "--model-path", grammar))
    try:
        if sources.mem_fraction_static is not None:
            patches += broadcast_patches(
                "mem_fraction_static",
                sources.mem_fraction_static,
                "--mem-fraction-static",
                grammar,
            )
        for override in sources.overrides:
            patches.append(value_patch(override.path, override.value, grammar, override.source))
    except ConfigError as error:
        problems += error.problems
    found, refused = word_patches(sources.words, grammar)
    return patches + found, problems + refused


def _baseline_model_path(pipeline: type[PipelineConfig], patches: Sequence[Patch]) -> str | None:
    """Return the model path a diff starts from: the weakest one written."""
    default = pipeline.model_fields["model_path"].default
    if isinstance(default, str):
        return default
    written = (p.read for p in patches if p.address.path == ("model_path",))
    return next((path for path in written if isinstance(path, str)), None)


def _derive(config: PipelineConfig, merge: Merge) -> bool:
    """Fill `engine.*` gaps that the model derives from other settings; say whether any was."""
    derived = False
    for stage in config.stages:
        for key, value in config.derived_engine(stage).items():
            path = ("stages", stage.name, "engine", key)
            if path not in merge.tracer:
                merge.derive(path, value)
                derived = True
    return derived
