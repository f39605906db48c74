"""Deployments and routes printed in the documents of the reference, planned here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from omni_config.errors import ConfigError
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from omni_models.qwen3_omni import routing
from tests.support.config import Case, cases, load_case, registry


def _seeds(kind: str) -> list[Case]:
    return [case for case in cases("seed") if case["input"]["seed"] == kind]


def _config(given: Mapping[str, Any]) -> PipelineConfig:
    if "yaml" in given:
        return load_case(given)
    cls = registry().by_name(given.get("config_cls", "Qwen3TTSPipelineConfig"))
    path = given.get("model_path", "Qwen/Qwen3-TTS-12Hz-0.6B-Base")
    return cls.model_validate({"model_path": path, **given.get("kwargs", {})})


@pytest.mark.parametrize(
    "case", [*_seeds("topology"), *_seeds("replicas")], ids=lambda case: case["id"]
)
def test_a_printed_deployment_is_planned(case: Case) -> None:
    expected = case["expected"]
    if not expected["ok"]:
        with pytest.raises(ConfigError) as refused:
            prepare_pipeline_runtime(_config(case["input"]))
        assert expected["error"]["says"] in str(refused.value)
        return
    plan = prepare_pipeline_runtime(_config(case["input"]))
    assert list(_printed(plan)) == expected["lines"]
    if "replica_topology" in expected:
        topology = {name: list(found) for name, found in plan.replica_topology.replicas.items()}
        assert topology == expected["replica_topology"]


def _printed(plan: PipelineRuntime) -> Iterator[str]:
    for group in plan.process_plan.groups:
        place = "CPU" if group.gpu_id is None else f"GPU{group.gpu_id}"
        yield f"process {group.name:14s} {place:5s} {', '.join(group.stage_names)}"
    for gpu in plan.placement_plan.gpus.values():
        missing = ", ".join(gpu.missing_fraction_stage_names)
        tail = f"; missing: {missing}" if missing else ""
        yield f"GPU{gpu.gpu_id}: fraction sum {gpu.total_gpu_memory_fraction:.2f}{tail}"


@pytest.mark.parametrize("case", _seeds("routing"), ids=lambda case: case["id"])
def test_a_printed_route_is_taken(case: Case) -> None:
    given, expected = case["input"], case["expected"]
    modalities = given["output_modalities"]
    inputs = given.get("encoder_inputs", {})
    metadata = {} if modalities is None else {"output_modalities": modalities}
    request = SimpleNamespace(metadata=metadata)
    payload = SimpleNamespace(request=request, data={"encoder_inputs": inputs})
    assert routing.should_generate_audio_output(modalities) is expected["speech"]
    assert list(routing.route_preprocessing(payload)) == expected["preprocessing_next"]
    text = list(routing.route_preprocessing_text(payload))
    assert text == expected["preprocessing_next_text_variant"]
    assert list(routing.route_encoder(payload)) == _listed(expected["encoder_next"])
    assert list(routing.thinker_stream_done(payload)) == expected["thinker_stream_done"]
    assert list(routing.expected_terminals(request)) == expected["terminals"]
    sources = routing.awaited_sources(None, "preprocessing", payload)
    assert list(sources or ()) == expected["wait_sources_from_preprocessing"]
    assert routing.awaited_sources(None, "audio_encoder", payload) is None


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
