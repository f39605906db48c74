"""Shell completion of settings: the stages and paths of the pipeline that the words so far name.

Paths complete a segment at a time, so that a list never grows longer than a screen. Where nothing
names a pipeline yet, the settings of all of them are offered. A broken file completes like none:
completion never fails and never speaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from omni_cli.arguments import Setting
from omni_cli.selection import Choice, known_pipelines, select_pipeline
from omni_cli.settings_command import settings_of
from omni_config.errors import OmniError
from omni_config.registry import PipelineClass
from omni_config.resolution.grammar import FREE_LEAF, Grammar, Group, Keyed, Leaf, Node, grammar_of
from omni_config.schema import PipelineConfig
from omni_config.settings import EngineArgs, FactoryArgs
from omni_config.vocabulary import engine_keys, factory_signature

Offer = tuple[str, str]
"""A completion and the help shown beside it."""

_BOOLEANS = ("true", "false")


def complete_setting(
    params: Mapping[str, Any], settings: Sequence[Setting], incomplete: str
) -> list[Offer]:
    """Return completions of a word that may be a setting's flag or the value of the last one.

    Args:
        params: values of the command's own options so far.
        settings: the settings typed so far; the last one may still lack its value.
    """
    pipelines = _pipelines(params)
    if incomplete.startswith("-"):
        typed = incomplete.lstrip("-").replace("-", "_")
        # A setting that the command has as an option of its own is offered once.
        offers = [offer for offer in _paths(pipelines, typed) if offer[0] not in params]
        return [(f"--{path}", text) for path, text in offers]
    if settings and settings[-1].value is None:
        return list(_values(pipelines, settings[-1].flag[2:], incomplete))
    return []


def complete_path(ctx: typer.Context, args: list[str], incomplete: str) -> list[Offer]:
    """Return completions of the PATH of `explain`."""
    settings = settings_of(ctx)
    if settings and settings[-1].value is None:
        return complete_setting(ctx.params, settings, incomplete)
    return list(_paths(_pipelines(ctx.params), incomplete.replace("-", "_")))


def complete_variant(ctx: typer.Context, args: list[str], incomplete: str) -> list[Offer]:
    """Return completions of `--variant`."""
    found = {cls.variant: cls.__name__ for cls in _pipelines(ctx.params) if cls.variant}
    return [offer for offer in found.items() if offer[0].startswith(incomplete)]


def _pipelines(params: Mapping[str, Any]) -> list[PipelineClass]:
    """Return the pipeline that is named so far, or all of them."""
    config = params.get("config")
    choice = Choice(
        config=None if config is None else str(config),
        model_path=params.get("model_path"),
        variant=params.get("variant"),
        text_only=bool(params.get("text_only")),
    )
    try:
        known = known_pipelines(params.get("pipelines"))
    except OmniError:
        known = known_pipelines(None)
    try:
        return [select_pipeline(choice, known).pipeline]
    except OmniError:
        return [pipeline for model in known.models for pipeline in model.pipelines]


def _paths(pipelines: Sequence[PipelineClass], typed: str) -> Iterator[Offer]:
    """Yield the next segment of every path that continues `typed`; a lone group is opened."""
    offers: dict[str, str] = {}
    for pipeline in pipelines:
        offers.update(_next_segments(pipeline, typed))
    if len(offers) == 1 and next(iter(offers)).endswith("."):
        yield from _paths(pipelines, next(iter(offers)))
        return
    yield from offers.items()


def _next_segments(pipeline: PipelineClass, typed: str) -> Iterator[Offer]:
    grammar = grammar_of(pipeline)
    above, _, begun = typed.rpartition(".")
    prefix = f"{above}." if above else ""
    for name, below, text in _children(grammar, above.split(".") if above else []):
        if name.startswith(begun):
            yield f"{prefix}{name}{'.' if below else ''}", text


def _children(grammar: Grammar, segments: Sequence[str]) -> Iterator[tuple[str, bool, str]]:
    """Yield name, whether something is below it, and help of each child of a path."""
    if not segments:
        for name in grammar.stages:
            yield name, True, "stage"
        for name, child in grammar.top.children.items():
            yield name, not isinstance(child, Leaf), child.description
        return
    node = _node(grammar, segments)
    if isinstance(node, Keyed):
        names = _processes(grammar.pipeline) if segments == ["processes"] else ()
        for name in names:
            yield name, True, "process group"
    elif isinstance(node, Group):
        for name, child in _group_children(grammar.pipeline, node, segments[0]).items():
            yield name, not isinstance(child, Leaf), child.description


def _node(grammar: Grammar, segments: Sequence[str]) -> Node | None:
    first = segments[0]
    node: Node | None = grammar.stages.get(first) or grammar.top.children.get(first)
    for segment in segments[1:]:
        if isinstance(node, Group):
            node = node.children.get(segment)
        elif isinstance(node, Keyed):
            node = node.value
        else:
            return None
    return node


def _group_children(pipeline: type[PipelineConfig], group: Group, stage: str) -> Mapping[str, Node]:
    """Return what may be written in a group: its fields, and the keys its consumer knows."""
    if issubclass(group.model, EngineArgs):
        return {**dict.fromkeys(engine_keys(), FREE_LEAF), **group.children}
    declared = {found.name: found for found in pipeline.declared_stages()}.get(stage)
    if declared is None or not issubclass(group.model, FactoryArgs):
        return group.children
    signature = factory_signature(declared.factory_path)
    if signature is None:
        return group.children
    return {
        name: group.children.get(name, Leaf(FREE_LEAF.type, signature.parameters[name].doc))
        for name in signature.settable
    }


def _processes(pipeline: type[PipelineConfig]) -> list[str]:
    return list(dict.fromkeys(stage.process_name for stage in pipeline.declared_stages()))


def _values(pipelines: Sequence[PipelineClass], path: str, begun: str) -> Iterator[Offer]:
    for pipeline in pipelines:
        node = _node(grammar_of(pipeline), path.replace("-", "_").split("."))
        if isinstance(node, Leaf):
            words = node.type.choices or (_BOOLEANS if bool in node.type.kinds else ())
            yield from ((word, "") for word in words if word.startswith(begun))
            return
