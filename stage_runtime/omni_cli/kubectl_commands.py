"""`kubectl omni`: pipelines of a cluster, looked at with the operator's own code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from omni_cli.cluster import (
    Target,
    look_at,
    plan_file,
    read_config_map,
    read_pipeline_object,
)
from omni_cli.output import line, print_lines
from omni_config.errors import ConfigError, Problem
from omni_operator.api.status import OmniPipelineStatus
from omni_operator.display.changes import diff_lines, refusals, summary_lines
from omni_operator.display.settings import changed_lines, config_text, explain_lines
from omni_operator.display.tree import edge_lines, status_lines
from omni_operator.names import KIND

EXIT_REFUSED = 1

Name = Annotated[str, typer.Argument(help="Name of the OmniPipeline.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Its namespace; the context's when absent.")
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="The kubeconfig; KUBECONFIG's when absent.")
]


def config(
    name: Name,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    full: Annotated[
        bool, typer.Option("--full", help="Print the whole configuration as YAML.")
    ] = False,
) -> None:
    """Show the settings that are not defaults, who set each of them, and whom that superseded."""
    target = Target(kubeconfig, namespace)
    if full:
        _, config_map = asyncio.run(read_config_map(target, name))
        _print(config_text(config_map).splitlines())
        return
    manifest = asyncio.run(read_pipeline_object(target, name))
    _print(changed_lines(_status(manifest).config))


def explain(
    name: Name,
    path: Annotated[str, typer.Argument(help="Setting, with or without `stages.`.")],
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Explain who set a value of a running pipeline, and whom that superseded."""
    _, config_map = asyncio.run(read_config_map(Target(kubeconfig, namespace), name))
    _print(explain_lines(config_map, path))


def status(name: Name, namespace: Namespace = None, kubeconfig: Kubeconfig = None) -> None:
    """Show a pipeline as a tree: conditions, gateways, groups, their pods, stages and edges."""
    found = asyncio.run(look_at(Target(kubeconfig, namespace), name))
    status = _status(found.manifest)
    _print(status_lines(name, status, found.observed, time.time()))
    _print(edge_lines(found.answers))


def plan(
    file: Annotated[Path, typer.Option("--filename", "-f", help="File with the OmniPipeline.")],
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show which fields would change.")] = False,
) -> None:
    """Show what `kubectl apply` of a file would do; the API server tries it and stores nothing."""
    objects = _read(file)
    beside = [one for one in objects if one["kind"] == "ConfigMap"]
    wrong: list[str] = []
    for manifest in (one for one in objects if one["kind"] == KIND):
        found = asyncio.run(plan_file(Target(kubeconfig, namespace), manifest, beside))
        _print(summary_lines(found.decision, found.changes))
        if diff:
            for one in found.changes:
                _print(diff_lines(one))
        wrong += [*refusals(found.decision), *found.refused]
    if wrong:
        _print(wrong)
        raise typer.Exit(EXIT_REFUSED)


def _read(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file.

    Raises:
        ConfigError: the file cannot be read, or holds no OmniPipeline.
    """
    try:
        found = [one for one in yaml.safe_load_all(file.read_text()) if one is not None]
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError([Problem("", f"{file}: {error}")]) from error
    if any(not isinstance(one, dict) or "kind" not in one for one in found):
        raise ConfigError([Problem("", f"{file}: not a Kubernetes object: it has no kind")])
    if not any(one["kind"] == KIND for one in found):
        kinds = ", ".join(str(one["kind"]) for one in found) or "nothing"
        raise ConfigError([Problem("", f"{file}: holds no {KIND}, but {kinds}")])
    return found


def _status(manifest: dict[str, Any]) -> OmniPipelineStatus:
    return OmniPipelineStatus.model_validate(manifest.get("status") or {})


def _print(lines: Iterable[str]) -> None:
    print_lines(line(text) for text in lines)


def _application(command: Any) -> typer.Typer:  # noqa: ANN401  any function of this module
    application = typer.Typer()
    application.command()(command)
    return application


config_app, explain_app = _application(config), _application(explain)
plan_app, status_app = _application(plan), _application(status)
