"""`omni config`: what a configuration resolves to, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.completion import complete_path
from omni_cli.explain import explanation, explanation_data, summary
from omni_cli.output import Format, Line, Span, line, print_data, print_lines, print_warnings
from omni_cli.settings_command import SettingsCommand
from omni_cli.sources import Resolved, SourceOptions, resolve_sources, takes_sources
from omni_config.errors import ConfigError, Problem
from omni_config.resolution.inspection import (
    UNCHANGED,
    changes,
    config_body,
    config_yaml,
    diff_lines,
    provenance_json,
    provenance_lines,
)

app = application(help="Resolve, explain and export a configuration.")

Output = Annotated[Format, typer.Option("--output", "-o", help="How to print it.")]


class View(StrEnum):
    """What `resolve` shows."""

    VALUES = "values"
    DIFF = "diff"
    PROVENANCE = "provenance"


@app.command(cls=SettingsCommand)
@takes_sources
def resolve(
    sources: SourceOptions,
    show: Annotated[View, typer.Option(help="What to show.")] = View.VALUES,
    output: Output = Format.TEXT,
) -> None:
    """Resolve a configuration: its values, what changed, or who set each value.

    Any setting may follow as `--<stage>.<path> VALUE` or `--<field> VALUE`.
    """
    resolved = resolve_sources(sources)
    print_warnings(resolved.resolution.warnings)
    if output is Format.TEXT:
        print_lines(_resolved_lines(resolved, show))
    else:
        print_data(_resolved_data(resolved, show), output)


@app.command(cls=SettingsCommand)
@takes_sources
def explain(
    sources: SourceOptions,
    path: Annotated[
        str | None,
        typer.Argument(
            help="Setting to explain, with or without `stages.`; all that were set when absent.",
            autocompletion=complete_path,
        ),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Explain who set a value, whom it superseded, and what else bears on it."""
    resolved = resolve_sources(sources)
    if path is None:
        print_warnings(resolved.resolution.warnings)
    if output is not Format.TEXT:
        print_data(explanation_data(resolved, path, os.environ), output)
    elif path is None:
        print_lines(line(text) for text in summary(resolved))
    else:
        print_lines(_styled(text) for text in explanation(resolved, path, os.environ))


@app.command(cls=SettingsCommand)
@takes_sources
def export(
    sources: SourceOptions,
    output_path: Annotated[
        Path | None,
        typer.Option("--output-path", "-O", help="File to write; standard output when absent."),
    ] = None,
) -> None:
    """Write the resolved configuration as a file that resolves to itself."""
    resolved = resolve_sources(sources)
    print_warnings(resolved.resolution.warnings)
    text = config_yaml(resolved.resolution.config)
    if output_path is None:
        print_lines(line(row) for row in text.splitlines())
        return
    try:
        output_path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"--output-path {output_path} cannot be written: {error.strerror}"
        raise ConfigError([Problem("", message)]) from error
    print_lines([line(f"Pipeline config exported to {output_path}")])


def _resolved_lines(resolved: Resolved, show: View) -> Iterator[Line]:
    resolution = resolved.resolution
    match show:
        case View.VALUES:
            return (line(text) for text in config_yaml(resolution.config).splitlines())
        case View.DIFF:
            return (line(text) for text in diff_lines(resolution) or [UNCHANGED])
        case View.PROVENANCE:
            return (_styled(text) for text in provenance_lines(resolution))


def _resolved_data(resolved: Resolved, show: View) -> object:
    resolution = resolved.resolution
    match show:
        case View.VALUES:
            return config_body(resolution.config)
        case View.DIFF:
            return [
                {"path": path, "from": change.default, "to": change.resolved}
                for path, change in changes(resolution).items()
            ]
        case View.PROVENANCE:
            return provenance_json(resolution)


def _styled(text: str) -> Line:
    """Let the winner stand out and what it superseded recede."""
    if text.endswith("[superseded]"):
        return line(text, "dim")
    if "  [winner]" in text:
        return line(text, "green")
    if text.startswith(" "):
        return line(text)
    path, equals, value = text.partition(" = ")
    return (Span(path, "bold"), Span(equals + value))
