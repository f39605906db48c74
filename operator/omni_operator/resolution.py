"""From an object and its profiles to a resolved, planned configuration, or to everything that is
wrong with it.

Every value knows who wrote it: profile and line, field of the object and field manager. Every
problem points at the field of the object that a person would edit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import yaml

from omni_config.errors import ConfigError, Problem
from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.resolved_plan import plan_resolution
from omni_config.registry import Registry
from omni_config.resolution.body import Body
from omni_config.resolution.document import parse_document
from omni_config.resolution.inspection import (
    Change,
    changes,
    config_hash,
    config_yaml,
    provenance_json,
)
from omni_config.resolution.paths import split_path
from omni_config.resolution.provenance import Trace, Write
from omni_config.resolution.resolve import (
    Override,
    Resolution,
    Sources,
    pipeline_of,
    profile_body,
    resolve,
)
from omni_config.resolution.sources import Layer, Source
from omni_operator.api.pipeline import OmniPipeline
from omni_operator.api.sources import Model
from omni_operator.api.status import ChangedSetting, ConfigStatus
from omni_operator.managers import field_managers, override_managers
from omni_operator.names import KIND, MODEL_DIR

MAX_CHANGED = 64
MAX_TEXT = 80
"""Longest value in `status`, in characters; the ConfigMap has it whole."""

_Dumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

Profiles = Mapping[tuple[str, str], str]
"""Text of each profile that was found, by name and key of its ConfigMap."""


@dataclass(frozen=True, slots=True)
class ResolvedPipeline:
    """An object whose configuration holds, with its plan.

    Attributes:
        config_yaml: the resolved configuration as a file that resolves to itself.
        provenance: who set each value, as JSON text.
        config_hash: changes whenever a resolved value does.
    """

    pipeline: OmniPipeline
    resolution: Resolution
    runtime: PipelineRuntime
    config_yaml: str
    provenance: str
    config_hash: str

    @property
    def warnings(self) -> tuple[str, ...]:
        """What holds but may surprise."""
        return tuple(dict.fromkeys((*self.resolution.warnings, *self.runtime.warnings)))


def resolve_pipeline(
    pipeline: OmniPipeline, profiles: Profiles, registry: Registry
) -> ResolvedPipeline:
    """Resolve and plan an object.

    Raises:
        ConfigError: with every problem, at paths of the object.
    """
    body = _object_body(pipeline)
    try:
        cls = pipeline_of(body, registry)
        sources = Sources(
            body=body,
            profiles=(*_profile_bodies(pipeline, profiles), *_model_bodies(pipeline)),
            overrides=tuple(_overrides(pipeline)),
        )
        resolution = resolve(cls, sources)
        runtime = plan_resolution(resolution)
    except ConfigError as error:
        raise type(error)(_at_object(error.problems, pipeline)) from error
    return ResolvedPipeline(
        pipeline=pipeline,
        resolution=resolution,
        runtime=runtime,
        config_yaml=config_yaml(resolution.config),
        provenance=json.dumps(provenance_json(resolution), indent=1, default=str),
        config_hash=config_hash(resolution.config),
    )


def model_directory(model: Model) -> str:
    """Return where pods find the checkpoint of `spec.model`."""
    if model.path is not None:
        return model.path
    repo = (model.repo or "").replace("/", "--")
    return f"{MODEL_DIR}/{repo}/{model.revision or 'main'}"


def config_status(resolved: ResolvedPipeline, config_map: str) -> ConfigStatus:
    """Return what `status.config` says: the settings that are not defaults, and who set them."""
    rows = [
        _changed_row(path, change, resolved.resolution)
        for path, change in changes(resolved.resolution).items()
    ]
    return ConfigStatus(
        hash=resolved.config_hash,
        config_map=config_map,
        changed=tuple(rows[:MAX_CHANGED]),
        omitted=max(0, len(rows) - MAX_CHANGED),
    )


def short_source(source: Source) -> str:
    """Return who wrote a value as `status` shows it: `spec.config by argocd`."""
    match source.kind:
        case "object":
            place = source.detail if source.detail.startswith("spec.") else _in_config(source)
        case "profile":
            line = "" if source.line is None else f":{source.line}"
            place = f"profile {source.origin}{line}"
        case "override":
            place = source.origin
        case _:
            place = str(source)
    return f"{place} by {source.manager}" if source.manager else place


def _in_config(source: Source) -> str:
    return f"spec.config {source.detail}" if source.detail else "spec.config"


def _object_body(pipeline: OmniPipeline) -> Body:
    values: dict[object, object] = dict(pipeline.spec.config.items())
    return Body(
        values=values,
        source=_object_source(pipeline),
        layer=Layer.FILE,
        managers=field_managers(pipeline.managed_fields, ("spec", "config")),
    )


def _object_source(pipeline: OmniPipeline, detail: str = "") -> Source:
    manager = None
    if detail:
        owners = field_managers(pipeline.managed_fields, tuple(detail.split(".")))
        manager = owners.get(())
    return Source("object", f"{KIND} {pipeline.reference}", detail, manager=manager)


def _profile_bodies(pipeline: OmniPipeline, profiles: Profiles) -> Iterator[Body]:
    missing: list[Problem] = []
    for index, ref in enumerate(pipeline.spec.profile_refs):
        text = profiles.get((ref.name, ref.key))
        if text is not None:
            yield profile_body(parse_document(text, f"{ref.name}/{ref.key}"))
        elif not ref.optional:
            at = f"spec.profileRefs[{index}]"
            message = (
                f"ConfigMap '{ref.name}' with key '{ref.key}' does not exist in namespace "
                f"'{pipeline.namespace}'; create it, or set optional: true"
            )
            missing.append(Problem(at, message, at))
    if missing:
        raise ConfigError(missing)


def _model_bodies(pipeline: OmniPipeline) -> Iterator[Body]:
    """Yield what `spec.model` settles: the path inside pods, and the name when nobody writes it."""
    model = pipeline.spec.model
    if model is None:
        return
    field = "spec.model.path" if model.path is not None else "spec.model.repo"
    source = _object_source(pipeline, field)
    yield Body({"model_path": model_directory(model)}, source, Layer.FILE)
    if model.repo is not None:
        # Without this the pipeline would be called after the directory of the download.
        yield Body({"name": model.repo}, source, Layer.DEFAULT)


def _overrides(pipeline: OmniPipeline) -> Iterator[Override]:
    managers = override_managers(pipeline.managed_fields)
    for index, entry in enumerate(pipeline.spec.overrides):
        source = Source("override", f"spec.overrides[{index}]", manager=managers.get(entry.path))
        yield Override(entry.path, entry.value, source)


def _at_object(problems: Iterable[Problem], pipeline: OmniPipeline) -> Iterator[Problem]:
    return (_located(problem, pipeline) for problem in problems)


def _located(problem: Problem, pipeline: OmniPipeline) -> Problem:
    """Return a problem at the field of the object that causes it.

    One that a profile causes keeps its setting's path and points at the profile's line.
    """
    if problem.path.startswith("spec."):
        return problem
    for index, entry in enumerate(pipeline.spec.overrides):
        if _same_setting(entry.path, problem.path):
            at = f"spec.overrides[{index}]"
            return replace(problem, path=at, where=at)
    origin = f"{KIND} {pipeline.reference}"
    if problem.where and not problem.where.startswith(origin):
        return problem
    at = f"spec.config.{problem.path}" if problem.path else "spec.config"
    return replace(problem, path=at, where=at)


def _same_setting(written: str, path: str) -> bool:
    return written.removeprefix("stages.").replace("-", "_") == path.removeprefix("stages.")


def _changed_row(path: str, change: Change, resolution: Resolution) -> ChangedSetting:
    trace = resolution.traces.get(split_path(path))
    default = f"default {short_text(change.default)}"
    if trace is None:
        return ChangedSetting(path=path, value=short_text(change.resolved), over=default)
    derived = [] if trace.derived else [default]
    return ChangedSetting(
        path=path,
        value=short_text(change.resolved),
        from_=short_source(trace.winner.source),
        over="; ".join((*_superseded(trace), *derived)),
    )


def _superseded(trace: Trace) -> Iterator[str]:
    for write in reversed(trace.writes[:-1]):
        yield _shown(write)


def _shown(write: Write) -> str:
    return f"{short_source(write.source)} {short_text(write.value)}"


def short_text(value: object) -> str:
    """Return a value as one line of YAML of at most 80 characters."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=10_000, allow_unicode=True
    )
    text = text.removesuffix("...\n").strip()
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
