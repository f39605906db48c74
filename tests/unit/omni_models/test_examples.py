"""The shipped example files plan, and mean what their comments say."""

from pathlib import Path

import pytest

from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.resolution.document import read_document
from omni_config.resolution.resolve import Resolution, Sources, file_body, pipeline_of, resolve
from omni_models.catalog import registry

EXAMPLES = Path(__file__).parents[3] / "examples"


def resolved(name: str) -> Resolution:
    body = file_body(read_document(str(EXAMPLES / name)))
    return resolve(pipeline_of(body, registry()), Sources(body=body))


@pytest.mark.parametrize(
    ("name", "fractions"),
    [
        ("qwen3-omni.yaml", {0: 0.94, 1: 0.4}),
        ("qwen3-omni-colocated.yaml", {0: 0.94}),
        ("qwen3-tts.yaml", {0: 0.0}),
    ],
)
def test_example_plans_without_a_warning(name: str, fractions: dict[int, float]) -> None:
    resolution = resolved(name)
    assert resolution.warnings == ()
    plan = prepare_pipeline_runtime(resolution.config)
    gpus = plan.placement_plan.gpus
    assert {gpu: gpus[gpu].total_gpu_memory_fraction for gpu in gpus} == fractions
