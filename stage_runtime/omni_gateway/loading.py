"""Reads the exported configuration that a gateway serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omni_config.resolution.document import read_document
from omni_config.resolution.resolve import Sources, file_body, pipeline_of, resolve
from omni_config.schema import PipelineConfig
from omni_models.catalog import registry


def load_config(path: Path, pipelines: Sequence[str] = ()) -> PipelineConfig:
    """Return the pipeline of a resolved configuration file.

    Args:
        pipelines: topology modules beside those that are installed.

    Raises:
        ConfigError: the file is no configuration, or names a pipeline that is not there.
    """
    body = file_body(read_document(path))
    return resolve(pipeline_of(body, registry(tuple(pipelines))), Sources(body=body)).config
