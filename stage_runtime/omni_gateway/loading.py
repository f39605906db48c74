"""Reads the exported configuration that a gateway serves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from omni_config.errors import ConfigError, Problem
from omni_config.resolution.document import read_document
from omni_config.resolution.inspection import PROVENANCE_FILE
from omni_config.resolution.resolve import Sources, file_body, pipeline_of, resolve
from omni_config.schema import PipelineConfig
from omni_models.catalog import registry


def load_provenance(config: Path) -> Mapping[str, str]:
    """Return who set each value of a resolved configuration, by path, if a file beside it says so.

    Raises:
        ConfigError: the file says it in no way that is known.
    """
    file = config.with_name(PROVENANCE_FILE)
    if not file.is_file():
        return {}
    try:
        return {
            str(row["path"]): str(row["writes"][-1]["source"])
            for row in json.loads(file.read_bytes())
        }
    except (ValueError, TypeError, LookupError) as error:
        raise ConfigError([Problem("", f"{file} is no provenance: {error!r}")]) from error


def load_config(path: Path, pipelines: Sequence[str] = ()) -> PipelineConfig:
    """Return the pipeline of a resolved configuration file.

    Args:
        pipelines: topology modules beside those that are installed.

    Raises:
        ConfigError: the file is no configuration, or names a pipeline that is not there.
    """
    body = file_body(read_document(path))
    return resolve(pipeline_of(body, registry(tuple(pipelines))), Sources(body=body)).config
