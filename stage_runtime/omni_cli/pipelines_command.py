"""`omni pipelines`: the models, their pipelines and the stages of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.output import (
    Format,
    Line,
    Span,
    print_data,
    print_lines,
    print_warnings,
    speaks_unicode,
)
from omni_cli.selection import known_pipelines
from omni_config.registry import Model, PipelineClass, Registry
from omni_config.schema import EngineStageConfig, StageConfig

app = application()

_UNICODE = ("├── ", "└── ", "│   ")
_ASCII = ("|-- ", "`-- ", "|   ")


@app.command()
def pipelines(
    pipelines: Annotated[
        list[str] | None,
        typer.Option(help="Python module with more pipelines; repeatable."),
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="How to print it.")
    ] = Format.TEXT,
) -> None:
    """List models, their pipelines and stages; `*` marks a stage that drives an engine."""
    known = known_pipelines(pipelines)
    print_warnings(f"{module}: {cause}" for module, cause in known.broken.items())
    if output is Format.TEXT:
        print_lines(_tree(known, _UNICODE if speaks_unicode(sys.stdout) else _ASCII))
    else:
        print_data([_model_data(model) for model in known.models], output)


def _tree(known: Registry, guides: tuple[str, str, str]) -> Iterator[Line]:
    branch, last_branch, trunk = guides
    for model in known.models:
        yield (Span(_title(model), "bold"),)
        for pipeline in model.pipelines:
            last = pipeline is model.pipelines[-1]
            yield (
                Span(last_branch if last else branch, "dim"),
                Span(pipeline.__name__, "cyan"),
                Span(_described(model, pipeline)),
                Span(f"  plan-only: {pipeline.plan_only}" if pipeline.plan_only else "", "yellow"),
            )
            indent = " " * len(trunk) if last else trunk
            stages = pipeline.declared_stages()
            width = max(len(stage.name) for stage in stages) + 1
            for stage in stages:
                guide = last_branch if stage is stages[-1] else branch
                yield (Span(indent + guide, "dim"), Span(_stage_text(stage, width)))


def _title(model: Model) -> str:
    return ", ".join(model.architectures) or model.default.__name__


def _described(model: Model, pipeline: PipelineClass) -> str:
    if pipeline.variant is None:
        return ""
    default = ", the default" if pipeline is model.default else ""
    return f"  --variant {pipeline.variant}{default}"


def _stage_text(stage: StageConfig, width: int) -> str:
    name = f"{stage.name}{'*' if isinstance(stage, EngineStageConfig) else ''}"
    place = f"GPU {','.join(map(str, stage.gpu_ids))}" if stage.gpu_ids else "CPU"
    goes = ", ".join(stage.next) or "(answer)"
    streams = f", streams to {', '.join(stage.stream_to)}" if stage.stream_to else ""
    return f"{name:{width}}  {place:5}  to {goes}{streams}"


def _model_data(model: Model) -> dict[str, object]:
    return {
        "architectures": list(model.architectures),
        "model_types": list(model.model_types),
        "pipelines": [_pipeline_data(model, pipeline) for pipeline in model.pipelines],
    }


def _pipeline_data(model: Model, pipeline: PipelineClass) -> dict[str, object]:
    return {
        "config_cls": pipeline.__name__,
        "variant": pipeline.variant,
        "default": pipeline is model.default,
        "plan_only": pipeline.plan_only,
        "stages": [
            {
                "name": stage.name,
                "engine": isinstance(stage, EngineStageConfig),
                "process": stage.process_name,
                "gpu_ids": list(stage.gpu_ids),
                "next": list(stage.next),
                "stream_to": list(stage.stream_to),
                "wait_for": list(stage.wait_for),
                "terminal": stage.terminal,
            }
            for stage in pipeline.declared_stages()
        ],
    }
