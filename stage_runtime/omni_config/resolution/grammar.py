"""What each path means: the settings of one pipeline class as a tree of nodes.

The tree is built from the declared types, so a field added to a model has its path, its type and
its description everywhere at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from omni_config.errors import ConfigError
from omni_config.resolution.paths import Path, format_path, path_error, split_path
from omni_config.resolution.scalars import ScalarType
from omni_config.schema import PipelineConfig, StageConfig
from omni_config.settings import FreeSettings
from omni_config.suggestions import nearest

ENGINE_ONLY = (
    "{stage} is not an engine stage: the engine block only exists on stages whose factory drives "
    "an SGLang engine, so there is nothing for engine settings to reach here"
)
REMOVED_STAGE_KEYS = {
    "runtime": "the runtime group was removed: resources.total_gpu_memory_fraction is now the "
    "stage-level gpu_memory_fraction, sglang_server_args is now engine.*, memory.kv_cache_bytes "
    "is now engine.kv_cache_bytes, memory.total_reserve_bytes and enforce_total_reserve are "
    "stage-level fields, and the remaining fields moved to factory.*",
    "factory_args": "factory_args was removed; write factory.* instead",
    "runtime_arg_map": "runtime_arg_map was removed; write factory.* or engine.* instead",
    "runtime_overrides": "runtime_overrides was removed; write engine.* or factory.* instead",
    "stage_overrides": "stage_overrides was removed; write the settings on the stage itself",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value; nothing can be addressed below it, unless it is free."""

    type: ScalarType
    description: str = ""
    free: bool = False


@dataclass(frozen=True, slots=True)
class Keyed:
    """A mapping whose keys the user chooses (environment variables) or the pipeline (processes)."""

    value: Leaf | Group
    description: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A settings group; `free` groups take keys that are not declared."""

    model: type[BaseModel]
    children: Mapping[str, Node]
    internal: Mapping[str, str] = field(default_factory=dict)
    description: str = ""

    @property
    def free(self) -> bool:
        return issubclass(self.model, FreeSettings)


Node = Leaf | Keyed | Group
FREE_LEAF = Leaf(ScalarType.free(), free=True)


@dataclass(frozen=True, slots=True)
class Address:
    """A compiled path: canonical segments and what they point at."""

    path: Path
    node: Node

    @property
    def is_leaf(self) -> bool:
        """Whether nothing can be addressed below it."""
        return isinstance(self.node, Leaf) and not self.node.free

    @property
    def is_free(self) -> bool:
        """Whether it is a key that only its consumer knows."""
        return isinstance(self.node, Leaf) and self.node.free

    def __str__(self) -> str:
        return format_path(self.path)


class Grammar:
    """Every public path of one pipeline class."""

    def __init__(self, pipeline: type[PipelineConfig]) -> None:
        self.pipeline = pipeline
        self.top = _group(pipeline, internal=pipeline.TOPOLOGY, hidden=("stages",))
        stages = pipeline.declared_stages()
        self.stages: Mapping[str, Group] = {
            stage.name: _stage_group(type(stage)) for stage in stages
        }

    def compile_cli(self, text: str) -> Address:
        """Compile a path as flags and `explain` spell it: `stages.` is implied."""
        return self.compile(split_path(text), spelling=text)

    def compile(self, segments: Sequence[str], spelling: str | None = None) -> Address:
        """Compile segments; a leading `stages` is optional.

        Raises:
            ConfigError: the path means nothing, with the reason and the nearest real names.
        """
        rest = tuple(segments[1:] if segments[0] == "stages" else segments)
        if not rest:
            raise path_error("stages", "'stages' names every stage; write one field of one stage")
        head = _known(rest[0], self.stages)
        if head is not None:
            return self._descend(("stages", head), self.stages[head], rest[1:])
        if segments[0] == "stages":
            raise self.unknown_stage(rest[0])
        head = _known(rest[0], self.top.children) or _known(rest[0], self.top.internal)
        if head is None:
            raise self._unknown_head(spelling or format_path(segments), rest[0])
        return self._descend((), self.top, (head, *rest[1:]))

    def stage(self, name: str) -> Address:
        """Return the address of a declared stage."""
        return Address(("stages", name), self.stages[name])

    def below(self, parent: Address, key: str) -> Address:
        """Compile one key of a mapping that stands at `parent`.

        Raises:
            ConfigError: nothing of that name can stand there.
        """
        return self._descend(parent.path, parent.node, (key,))

    def compile_top(self, key: str) -> Address:
        """Compile a top-level key of a file, where a stage stands under `stages:`.

        Raises:
            ConfigError: the pipeline has no such setting.
        """
        if _known(key, self.stages) is not None and _known(key, self.top.children) is None:
            raise path_error(key, f"'{key}' is a stage; write its settings under stages: {key}:")
        name, child = _child((), self.top, key)
        return Address((name,), child)

    def unknown_stage(self, name: str) -> ConfigError:
        """Return the error for a stage that is not declared."""
        return path_error(
            f"stages.{name}",
            f"stages.{name}: no stage named '{name}' in {self.pipeline.__name__}; stage topology "
            f"lives in the model's config class. This pipeline has: {', '.join(self.stages)}",
            nearest(name, self.stages),
        )

    def public_paths(self) -> Iterator[tuple[str, Node]]:
        """Yield every public path below top-level fields and stages, with `*` for a free choice."""
        for name, child in self.top.children.items():
            yield from _walk((name,), child)
        for stage, group in self.stages.items():
            for name, child in group.children.items():
                yield from _walk(("stages", stage, name), child)

    def _unknown_head(self, spelling: str, head: str) -> ConfigError:
        suggestions = nearest(head, [*self.stages, *self.top.children])
        return path_error(
            spelling,
            f"'{spelling}' does not start from a stage name or a top-level configuration field "
            f"of {self.pipeline.__name__}\n  stages of this pipeline: {', '.join(self.stages)}",
            suggestions,
        )

    def _descend(self, path: Path, node: Node, rest: Path) -> Address:
        while rest:
            if isinstance(node, Leaf):
                return self._below_leaf(path, node, rest)
            if isinstance(node, Keyed):
                key, rest = self._key(path, node, rest)
                path, node = (*path, key), node.value
                continue
            name, child = _child(path, node, rest[0])
            path, node, rest = (*path, name), child, rest[1:]
        return Address(path, node)

    def _key(self, path: Path, node: Keyed, rest: Path) -> tuple[str, Path]:
        """Take the key from the segments; a key written without quotes may contain dots."""
        if isinstance(node.value, Leaf):
            return ".".join(rest), ()
        if len(rest) == 1:
            return rest[0], ()
        return ".".join(rest[:-1]), rest[-1:]

    def _below_leaf(self, path: Path, node: Leaf, rest: Path) -> Address:
        if node.free:
            return Address((*path, *rest), FREE_LEAF)
        raise path_error(
            format_path((*path, *rest)),
            f"{format_path(path)} is a leaf of type {node.type.text}; nothing can be addressed "
            f"below it (got '{rest[0]}')",
        )


@cache
def grammar_of(pipeline: type[PipelineConfig]) -> Grammar:
    """Return the grammar of a pipeline class, built once."""
    return Grammar(pipeline)


def _child(path: Path, group: Group, segment: str) -> tuple[str, Node]:
    name = _known(segment, group.children)
    if name is not None:
        return name, group.children[name]
    where = format_path(path)
    if segment in group.internal:
        full = format_path((*path, segment))
        raise path_error(
            full,
            f"Config path '{full}' is internal and cannot be set directly: "
            f"{group.internal[segment]}",
        )
    if group.free:
        # Keys of ServerArgs and of factories are Python identifiers, so a dash is a spelling.
        return segment.replace("-", "_"), FREE_LEAF
    if segment == "engine" and issubclass(group.model, StageConfig):
        raise path_error(f"{where}.engine", ENGINE_ONLY.format(stage=where))
    if segment in REMOVED_STAGE_KEYS and issubclass(group.model, StageConfig):
        raise path_error(
            f"{where}.{segment}",
            f"{group.model.__name__} has no field '{segment}' at '{where}': "
            f"{REMOVED_STAGE_KEYS[segment]}",
        )
    at = f" at '{where}'" if where else ""
    raise path_error(
        format_path((*path, segment)),
        f"{group.model.__name__} has no field '{segment}'{at}",
        [format_path((*_spoken(path), match)) for match in nearest(segment, group.children)],
    )


def _spoken(path: Path) -> Path:
    """Return the path as a flag spells it: suggestions must be accepted where they are read."""
    return path[1:] if path[:1] == ("stages",) else path


def _known(segment: str, names: Mapping[str, object]) -> str | None:
    if segment in names:
        return segment
    underscored = segment.replace("-", "_")
    return underscored if underscored in names else None


def _walk(path: Path, node: Node) -> Iterator[tuple[str, Node]]:
    yield format_path(path), node
    if isinstance(node, Keyed):
        yield from _walk((*path, "*"), node.value)
    elif isinstance(node, Group):
        for name, child in node.children.items():
            yield from _walk((*path, name), child)


@cache
def _stage_group(stage: type[StageConfig]) -> Group:
    return _group(stage, internal=stage.TOPOLOGY)


def _group(
    model: type[BaseModel],
    internal: Mapping[str, str] | None = None,
    hidden: tuple[str, ...] = (),
    description: str = "",
) -> Group:
    internal = internal or {}
    children = {
        name: _node(info.annotation, tuple(info.metadata), info.description or "")
        for name, info in model.model_fields.items()
        if name not in internal and name not in hidden
    }
    return Group(model, children, internal, description)


def _node(annotation: object, metadata: tuple[Any, ...], description: str) -> Node:
    model = _settings_model(annotation)
    if model is not None:
        return _group(model, description=description)
    if get_origin(annotation) is dict:
        value = _node(get_args(annotation)[1], (), description)
        assert not isinstance(value, Keyed)
        return Keyed(value, description)
    full = Annotated[annotation, *metadata] if metadata else annotation
    return Leaf(ScalarType.of(full), description)


def _settings_model(annotation: object) -> type[BaseModel] | None:
    return (
        annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    )
