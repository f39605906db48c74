"""The reference of every setting, made from the types that read them.

A page written by hand would be wrong by the next release; this one is compared with the types
whenever the project is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from omni_config.registry import PipelineClass, Registry
from omni_config.resolution.grammar import Group, Keyed, Leaf, Node, grammar_of
from omni_config.schema import EngineStageConfig, PipelineConfig
from omni_config.vocabulary import (
    FactorySignature,
    factory_signature,
    server_args_fields,
    server_args_version,
)

Row = tuple[str, str, str, str]
"""Path, type, default and meaning of a setting."""

_HEAD = """\
# Every setting

Made by `make generate` from the types that read the settings; do not edit. How paths are written,
and which source wins, is in [configuration.md](configuration.md). `omni config explain PATH` and
shell completion show the same texts.
"""
_PIPELINE = "At the top of a file; `--<path>` as a flag."
_STAGE = "Under `stages.<stage>` in a file; `--<stage>.<path>` as a flag."
_ENGINE = (
    "Under `stages.<stage>.engine`, of stages that drive an engine. These are checked by omnipipe; "
    "the {count} fields of SGLang {version}'s `ServerArgs` are passed on to it."
)
_FACTORY = (
    "Under `stages.<stage>.factory`. What is not set has the factory's own default. A factory is "
    "told by placement which device it has; that cannot be written."
)


def settings_reference(registry: Registry) -> str:
    """Return the reference as Markdown."""
    pipelines = [pipeline for model in registry.models for pipeline in model.pipelines]
    return "\n".join([_HEAD, *_sections(pipelines)])


def _sections(pipelines: Sequence[PipelineClass]) -> Iterator[str]:
    common = list(_group_rows("", grammar_of(PipelineConfig).top))
    yield from _section("## Of a pipeline", _PIPELINE, common)
    for pipeline in pipelines:
        own = [row for row in _group_rows("", grammar_of(pipeline).top) if row not in common]
        if own:
            yield from _section(f"### Of {pipeline.__name__} besides", "", own)
    stage = _engine_stage(pipelines)
    below = [row for row in _group_rows("", stage) if row[0].split(".")[0] not in _CONSUMERS]
    yield from _section("## Of a stage", _STAGE, below)
    engine = _ENGINE.format(count=len(server_args_fields()), version=server_args_version())
    yield from _section("## Of an engine", engine, _rows("", stage.children["engine"], None))
    yield from ("## Of a stage's factory", "", _FACTORY, "")
    for (stage_name, _), (signature, users) in _factories(pipelines).items():
        title = f"### {stage_name} ({', '.join(users)})"
        yield from _section(title, "", _factory_rows(signature))


_CONSUMERS = ("engine", "factory")


def _engine_stage(pipelines: Iterable[PipelineClass]) -> Group:
    """Return the settings of a stage that has every group."""
    for pipeline in pipelines:
        for stage in pipeline.declared_stages():
            if isinstance(stage, EngineStageConfig):
                return grammar_of(pipeline).stages[stage.name]
    raise ValueError("no pipeline has an engine stage")


def _factories(
    pipelines: Iterable[PipelineClass],
) -> dict[tuple[str, str], tuple[FactorySignature, list[str]]]:
    """Return factories that have settings by stage and import path, with the pipelines of each."""
    found: dict[tuple[str, str], tuple[FactorySignature, list[str]]] = {}
    for pipeline in pipelines:
        for stage in pipeline.declared_stages():
            signature = factory_signature(stage.factory_path)
            if signature is not None and signature.settable:
                key = (stage.name, stage.factory_path)
                found.setdefault(key, (signature, []))[1].append(_short(pipeline))
    return found


def _short(pipeline: PipelineClass) -> str:
    return pipeline.__name__.removesuffix("PipelineConfig")


def _factory_rows(signature: FactorySignature) -> Iterator[Row]:
    for name in signature.settable:
        found = signature.parameters[name]
        default = "given by the pipeline" if found.required else f"`{found.default}`"
        yield name, f"`{found.annotation}`", default, found.doc


def _group_rows(prefix: str, group: Group) -> Iterator[Row]:
    for name, child in group.children.items():
        yield from _rows(f"{prefix}{name}", child, _default(group.model, name))


def _rows(path: str, node: Node, default: str | None) -> Iterator[Row]:
    if isinstance(node, Leaf):
        yield path, f"`{node.type.text}`", default or "", node.description
    elif isinstance(node, Keyed):
        key = f"{path}.<name>"
        value = node.value
        yield from (
            _rows(key, value, default) if isinstance(value, Leaf) else _group_rows(f"{key}.", value)
        )
    else:
        yield from _group_rows(f"{path}." if path else "", node)


def _default(model: type[BaseModel], field: str) -> str:
    info = model.model_fields[field]
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    return "" if value is None or isinstance(value, dict) else f"`{_written(value)}`"


def _written(value: object) -> str:
    """Return a value as a file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _section(title: str, text: str, rows: Iterable[Row]) -> Iterator[str]:
    yield from (title, "")
    if text:
        yield from (text, "")
    yield "| path | type | default | meaning |"
    yield "|---|---|---|---|"
    for path, kind, default, meaning in rows:
        cells = (f"`{path}`", kind, default, meaning)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""
