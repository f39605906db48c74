"""Patches merged into a configuration, weakest first.

Only what a patch touches is rebuilt: an untouched stage is the declared object itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from omni_config.errors import ConfigError, Problem
from omni_config.resolution.grammar import Group, Keyed
from omni_config.resolution.paths import Path
from omni_config.resolution.provenance import Tracer, Write, below, located, plain
from omni_config.resolution.refusals import validation_problems
from omni_config.resolution.sources import Patch, Source
from omni_config.schema import PipelineConfig, StageConfig
from omni_config.settings import FreeSettings

DERIVED = Source("model default", detail="derived from the resolved TP settings at launch")
MOVED_TO_CPU = Source("model default", detail="a stage without a GPU has no GPU budget")
_CLEARABLE = ("engine",)
_GPU_BUDGETS = ("gpu_memory_fraction", "total_reserve_bytes")


def conflicts(patches: Iterable[Patch]) -> list[Problem]:
    """Return a problem for each path that one layer writes twice with different values."""
    writers: defaultdict[tuple[Path, tuple[int, int, int]], list[Patch]] = defaultdict(list)
    for patch in patches:
        writers[(patch.address.path, patch.rank)].append(patch)
    return [
        _conflict(written)
        for written in writers.values()
        if len(written) > 1 and any(p.read != written[0].read for p in written[1:])
    ]


def _conflict(patches: Sequence[Patch]) -> Problem:
    first = patches[0]
    path = str(first.address)
    lines = [
        f"{path} is set twice at the same precedence ({first.layer.label}, "
        f"{first.specificity.name.lower()}):"
    ]
    for patch in patches:
        line = f", line {patch.source.line}" if patch.source.line is not None else ""
        lines.append(f"  {patch.value!r}  <- {patch.source}{line}")
    lines.append("Pick one.")
    return Problem(path, "\n".join(lines))


class Merge:
    """One configuration being built from defaults and patches."""

    def __init__(self, pipeline: type[PipelineConfig], model_path: str) -> None:
        self._pipeline = pipeline
        self._declared = {stage.name: stage for stage in pipeline.declared_stages()}
        self._top: dict[str, Any] = {"model_path": model_path}
        self._touched: dict[str, dict[str, Any]] = {}
        self._model_path = model_path
        self.tracer = Tracer()
        self.problems: list[Problem] = []

    def apply(self, patch: Patch) -> None:
        """Write one patch; a null at a group clears what is below it."""
        path = patch.address.path
        write = Write(patch.value, patch.source)
        baseline = self._baseline(path)
        if isinstance(patch.address.node, (Group, Keyed)):
            self._clear(patch, write, baseline)
            return
        self.tracer.add(path, baseline, write)
        self._write(path, patch.read)

    def derive(self, path: Path, value: object) -> None:
        """Fill a gap with a value that follows from other settings."""
        self.tracer.add_derived(path, Write(value, DERIVED))
        self._write(path, value)

    def drop_idle_budgets(self) -> None:
        """Take a GPU budget that nobody wrote from a stage that was moved to the CPU."""
        for name, tree in self._touched.items():
            if tree["gpu"] is not None:
                continue
            for field in _GPU_BUDGETS:
                path = ("stages", name, field)
                if tree[field] is not None and path not in self.tracer:
                    self.tracer.add(path, tree[field], Write(None, MOVED_TO_CPU))
                    tree[field] = None

    def build(self, refused: Sequence[Problem] = ()) -> PipelineConfig:
        """Return the configuration.

        Args:
            refused: problems of the sources. A value that was refused is not in the configuration,
                so rules are reported only for stages that no such value was meant for.

        Raises:
            ConfigError: everything that is wrong, each problem at its source.
        """
        problems = [*refused, *self.problems]
        stages = [self._stage(name, problems) for name in self._declared]
        try:
            config = self._pipeline.model_validate({**self._top, "stages": tuple(stages)})
        except ValidationError as error:
            problems += validation_problems(error, self._pipeline, ())
        except ConfigError as error:
            spoilt = {_owner(problem.path) for problem in problems}
            problems += [p for p in error.problems if _owner(p.path) not in spoilt]
        if problems:
            traces = self.tracer.traces()
            # A refused source said where it was written; one without a place is a flag.
            broken = [located(problem, traces) for problem in problems[len(refused) :]]
            raise ConfigError([*refused, *broken])
        return config

    def _stage(self, name: str, problems: list[Problem]) -> StageConfig:
        """Return one stage as written; the declared one when nothing, or nothing valid, was."""
        declared = self._declared[name]
        tree = self._touched.get(name)
        if tree is None:
            return declared
        try:
            return type(declared).model_validate(tree)
        except ValidationError as error:
            problems += validation_problems(error, type(declared), ("stages", name))
            return declared

    def _write(self, path: Path, value: object) -> None:
        tree, rest = self._tree(path)
        for segment in rest[:-1]:
            tree[segment] = _open(tree.get(segment))
            tree = tree[segment]
        tree[rest[-1]] = value

    def _tree(self, path: Path) -> tuple[dict[str, Any], Path]:
        if path[0] != "stages":
            if path[0] not in self._top:
                self._top[path[0]] = _default(self._pipeline, path[0])
            return self._top, path
        name = path[1]
        tree = self._touched.get(name)
        if tree is None:
            stage = self._declared[name]
            tree = {field: getattr(stage, field) for field in type(stage).model_fields}
            self._touched[name] = tree
        return tree, path[2:]

    def _clear(self, patch: Patch, write: Write, baseline: object) -> None:
        address = patch.address
        if isinstance(address.node, Group) and address.path[-1] not in _CLEARABLE:
            self.problems.append(
                Problem(
                    str(address),
                    f"{address} is a settings group and cannot be null; write null at one field "
                    "below it to clear that field",
                    patch.source.where,
                )
            )
            return
        cause = Write(None, replace(patch.source, detail=f"cleared with {address}"))
        for child in self._written_below(address.path):
            self.tracer.add(child, self._baseline(child), cause)
        self.tracer.add(address.path, baseline, write)
        self._write(address.path, {})

    def _written_below(self, path: Path) -> list[Path]:
        tree, rest = self._tree(path)
        value: object = tree
        for segment in rest:
            value = below(value, segment)
        return [child for child, item in _leaves(path, plain(value)) if item is not None]

    def _baseline(self, path: Path) -> object:
        if path == ("model_path",) or path == ("name",):
            return self._model_path
        if path[0] == "stages":
            value: object = self._declared[path[1]]
            rest = path[2:]
        else:
            value, rest = _default(self._pipeline, path[0]), path[1:]
        for segment in rest:
            value = below(value, segment)
        return plain(value)


def _owner(path: str) -> tuple[str, ...]:
    """Return the stage, or the top-level setting, that a problem is about."""
    segments = path.split(".")
    if segments[0] == "stages":
        return tuple(segments[:2])
    return ("stages", segments[0])


def _default(model: type[BaseModel], field: str) -> object:
    return model.model_fields[field].get_default(call_default_factory=True)


def _open(value: object) -> dict[str, Any]:
    """Return a group or mapping as a dictionary that may be written, holding what is set."""
    if isinstance(value, FreeSettings):
        set_fields = {
            key: getattr(value, key)
            for key in value.model_fields_set
            if key in type(value).model_fields
        }
        return set_fields | value.free_keys()
    if isinstance(value, BaseModel):
        return {key: getattr(value, key) for key in type(value).model_fields}
    return dict(value) if isinstance(value, Mapping) else {}


def _leaves(path: Path, value: object) -> list[tuple[Path, object]]:
    if not isinstance(value, dict):
        return [(path, value)]
    return [leaf for key, item in value.items() for leaf in _leaves((*path, key), item)]
