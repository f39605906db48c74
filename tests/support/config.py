"""Runs configuration cases: a file, flags and words in, a resolution out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from omni_config.registry import Registry
from omni_config.resolution.document import parse_document
from omni_config.resolution.resolve import Resolution, Sources, file_body, pipeline_of, resolve
from omni_config.schema import PipelineConfig
from omni_models.catalog import registry as shipped_registry

CASES = Path(__file__).parents[1] / "cases"
BASES = {
    "tts": "Qwen3TTSPipelineConfig",
    "speech": "Qwen3OmniSpeechPipelineConfig",
    "text": "Qwen3OmniPipelineConfig",
}

Case = dict[str, Any]


@cache
def registry() -> Registry:
    """Return the shipped pipelines, read once."""
    return shipped_registry()


def cases(kind: str) -> list[Case]:
    """Return the cases of one kind."""
    loaded: list[Case] = json.loads((CASES / "config" / f"{kind}.json").read_text())["cases"]
    return loaded


def deviations(name: str) -> dict[str, Case]:
    """Return where ours differs on purpose: case id to what ours gives and why."""
    loaded: dict[str, Case] = json.loads((CASES / "deviations" / f"{name}.json").read_text())
    return loaded


def resolve_case(given: Mapping[str, Any]) -> Resolution:
    """Resolve the input of a case.

    Raises:
        ConfigError: the input is refused.
    """
    flags = given.get("flags", {})
    sources = {
        "words": tuple(given.get("argv", ())),
        "model_path": flags.get("model_path"),
        "mem_fraction_static": flags.get("mem_fraction_static"),
    }
    if "yaml" in given:
        body = file_body(parse_document(given["yaml"], given.get("file", "case.yaml")))
        return resolve(pipeline_of(body, registry()), Sources(body=body, **sources))
    checkpoint = given["checkpoint"]
    found = {key: value for key, value in checkpoint.items() if key != "dir"}
    pipeline = registry().for_checkpoint(found, flags.get("variant"), checkpoint["dir"])
    sources["model_path"] = sources["model_path"] or f"./{checkpoint['dir']}"
    return resolve(pipeline, Sources(**sources))


def load_case(given: Mapping[str, Any]) -> PipelineConfig:
    """Return the resolved configuration of a case's input."""
    return resolve_case(given).config
