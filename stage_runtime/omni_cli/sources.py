"""The options by which every command is told what to configure, and what they resolve to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Concatenate, get_type_hints

import typer

from omni_cli.arguments import Setting
from omni_cli.completion import complete_variant
from omni_cli.selection import Choice, Selection, known_pipelines, select_pipeline
from omni_cli.settings_command import options_of, settings_of
from omni_config.errors import ConfigError, Problem
from omni_config.resolution.document import read_document
from omni_config.resolution.grammar import Grammar, grammar_of
from omni_config.resolution.resolve import Resolution, Sources, profile_body, resolve
from omni_config.schema import PipelineConfig
from omni_config.suggestions import nearest

_PANEL = "What to configure"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a user brought: a file or a checkpoint, profiles, broadcast flags and settings.

    The annotated fields are the options themselves; `takes_sources` gives them to a command.
    """

    config: Annotated[
        Path | None,
        typer.Option("--config", "-f", help="Configuration file.", rich_help_panel=_PANEL),
    ] = None
    model_path: Annotated[
        str | None,
        typer.Option(help="Checkpoint: directory or hub id.", rich_help_panel=_PANEL),
    ] = None
    variant: Annotated[
        str | None,
        typer.Option(
            help="Pipeline of the checkpoint, see `omni pipelines`.",
            autocompletion=complete_variant,
            rich_help_panel=_PANEL,
        ),
    ] = None
    text_only: Annotated[
        bool,
        typer.Option("--text-only", help="Short for --variant text.", rich_help_panel=_PANEL),
    ] = False
    mem_fraction_static: Annotated[
        float | None,
        typer.Option(
            help="Sets engine.mem_fraction_static of every engine stage.", rich_help_panel=_PANEL
        ),
    ] = None
    profile: Annotated[
        list[Path] | None,
        typer.Option(
            help="Defaults of a platform team, below --config; repeatable.", rich_help_panel=_PANEL
        ),
    ] = None
    pipelines: Annotated[
        list[str] | None,
        typer.Option(help="Python module with more pipelines; repeatable.", rich_help_panel=_PANEL),
    ] = None
    settings: tuple[Setting, ...] = field(default=(), kw_only=True)
    options: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def choice(self) -> Choice:
        """The part that chooses the pipeline."""
        config = None if self.config is None else str(self.config)
        return Choice(config, self.model_path, self.variant, self.text_only)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A chosen pipeline, resolved."""

    selection: Selection
    resolution: Resolution


def resolve_sources(options: SourceOptions) -> Resolved:
    """Choose the pipeline and resolve every source.

    Raises:
        ConfigError: with every problem of the flags and of the sources.
    """
    selection = select(options)
    strange = list(_strange_options(options, grammar_of(selection.pipeline)))
    accepted = [setting for setting in options.settings if setting not in dict(strange)]
    problems = [problem for _, problem in strange]
    sources = Sources(
        body=selection.body,
        profiles=tuple(profile_body(read_document(path)) for path in options.profile or ()),
        words=tuple(word for setting in accepted for word in setting.words),
        model_path=options.model_path,
        mem_fraction_static=options.mem_fraction_static,
    )
    try:
        resolution = resolve(selection.pipeline, sources)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if problems:
        raise ConfigError(problems)
    return Resolved(selection, resolution)


def select(options: SourceOptions) -> Selection:
    """Choose the pipeline.

    Raises:
        ConfigError: nothing fits; a misspelt option that may be why is named too.
    """
    try:
        return select_pipeline(options.choice, known_pipelines(options.pipelines))
    except ConfigError as error:
        misspelt = _misspelt_options(options)
        raise ConfigError([*misspelt, *error.problems]) from None


def takes_sources(
    command: Callable[Concatenate[SourceOptions, ...], None],
) -> Callable[..., None]:
    """Give a command every option of `SourceOptions`; it receives them as its first argument."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = list(_option_parameters())

    # Options arrive by name, each of its own type.
    def run(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401
        brought = {parameter.name: given.pop(parameter.name) for parameter in shared}
        sources = SourceOptions(**brought, settings=settings_of(ctx), options=options_of(ctx))
        command(sources, **given)

    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    signature = inspect.Signature([context, *keyword, *shared])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option_parameters() -> Iterator[inspect.Parameter]:
    hints = get_type_hints(SourceOptions, include_extras=True)
    for option in fields(SourceOptions):
        if not option.kw_only:
            yield inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=hints[option.name],
            )


def _strange_options(options: SourceOptions, grammar: Grammar) -> Iterator[tuple[Setting, Problem]]:
    """Yield each flag that is neither an option of the command nor begins like a setting."""
    names = {*grammar.stages, *grammar.top.children, *grammar.top.internal, "stages"}
    offered = [*options.options, *(f"--{name}" for name in grammar.top.children)]
    for setting in options.settings:
        if setting.dotless and setting.head.replace("-", "_") not in names:
            yield setting, _no_such_option(setting, offered, grammar.pipeline)


def _misspelt_options(options: SourceOptions) -> list[Problem]:
    """Return the flags that look like an option of the command, while no pipeline is known."""
    return [
        _no_such_option(setting, options.options)
        for setting in options.settings
        if setting.dotless and _no_such_option(setting, options.options).suggestions
    ]


def _no_such_option(
    setting: Setting, offered: Iterable[str], pipeline: type[PipelineConfig] | None = None
) -> Problem:
    nor = f", and no stage or setting of {pipeline.__name__} is called that" if pipeline else ""
    names = nearest(setting.head, (flag.removeprefix("--") for flag in offered))
    close = tuple(f"--{name}" for name in names)
    return Problem("", f"No such option: {setting.flag}{nor}", suggestions=close)
