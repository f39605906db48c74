"""The planning cases: what runs where, or why nothing may."""

from __future__ import annotations

from typing import Any

import pytest

from omni_config.errors import PlanError
from omni_config.planning.endpoints import MAX_SOCKET_PATH_BYTES
from omni_config.planning.instances import ReplicaBinder
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from tests.support.config import Case, load_case
from tests.support.planning import (
    accepted,
    no_signatures,
    plan_case,
    planning_cases,
    planning_deviations,
    signatures_of,
)

KINDS = (
    "plan",
    "binding",
    "device-range",
    "capacity",
    "mps",
    "weight-share",
    "factory",
    "tp-env",
    "spawn-env",
)
CODE2WAV = "omni_models.qwen3_omni.factories.create_code2wav"


def _code2wav_parameters() -> list[str]:
    (case,) = [c for c in planning_cases("factory") if c["id"] == "factory-code2wav-newer-keys"]
    parameters: list[str] = case["input"]["factory_params"]
    return parameters


KNOWN_FACTORIES = {
    "plan-colocated-h100-newer-keys": signatures_of({CODE2WAV: _code2wav_parameters()})
}
"""Cases about factory keys; everywhere else no factory is known."""


@pytest.mark.parametrize(
    "case",
    [*planning_cases("plan"), *planning_cases("device-range"), *planning_cases("capacity")],
    ids=lambda case: case["id"],
)
def test_a_configuration_is_planned_or_refused_as_the_case_says(case: Case) -> None:
    expected = case["expected"]
    known = KNOWN_FACTORIES.get(case["id"], no_signatures)
    runtime = accepted(lambda: plan_case(case["input"], known), expected)
    if runtime is None:
        return
    if "plan" in expected:
        assert _as_reference(runtime) == expected["plan"]
    if "max_in_flight" in expected:
        assert runtime.max_in_flight == expected["max_in_flight"]
    if "plan" in expected or "warnings" in expected:
        assert list(runtime.warnings) == expected.get("warnings", [])
    _assert_one_socket_per_process(runtime)


@pytest.mark.parametrize("case", planning_cases("binding"), ids=lambda case: case["id"])
def test_requests_are_bound_to_replicas_in_turn(case: Case) -> None:
    expected = case["expected"]
    runtime = plan_case(case["input"])
    binder = ReplicaBinder(runtime.replica_topology)
    bindings = [binder.bind() for _ in range(case["input"]["requests"])]
    entry = runtime.config.entry
    assert [b and dict(b.replica_by_stage) for b in bindings] == expected["bindings"]
    assert [b.instance_of(entry) if b else entry for b in bindings] == expected["entry_instances"]
    assert runtime.to_json()["replicas"] == expected["instances"]
    assert list(runtime.warnings) == expected.get("warnings", [])


def test_resolving_tells_no_problem_that_only_planning_can_know() -> None:
    """`config resolve` may succeed on what `plan` refuses; both are wanted."""
    (case,) = [c for c in planning_cases("plan") if c["id"] == "plan-default-colocated"]
    config = load_case(case["input"])
    with pytest.raises(PlanError, match=r"requires gpu_memory_fraction or engine\.kv_cache_bytes"):
        prepare_pipeline_runtime(config)


def test_every_deviation_belongs_to_a_case_and_gives_its_reason() -> None:
    known = {case["id"] for kind in KINDS for case in planning_cases(kind)}
    assert set(planning_deviations()) <= known
    assert all(deviation["why"] for deviation in planning_deviations().values())


def _as_reference(runtime: PipelineRuntime) -> dict[str, Any]:
    """Return our plan under the names that the cases use."""
    plan: dict[str, Any] = runtime.to_json()
    return {
        "groups": [
            {"name": group["name"], "gpu": group["gpu_id"], "stages": group["stage_names"]}
            for group in plan["groups"]
        ],
        "tp_processes": plan["tp_processes"],
        "gpus": {
            gpu_id: {
                "stages": gpu["stage_names"],
                "fraction_sum": gpu["total_gpu_memory_fraction"],
                "missing": gpu["missing_fraction_stage_names"],
                "kv_cache_bytes": gpu["kv_cache_bytes"],
                "reserve_bytes": gpu["total_reserve_bytes"],
            }
            for gpu_id, gpu in plan["gpus"].items()
        },
        "replicas": plan["replicas"],
        "entry": plan["entry"],
    }


def _assert_one_socket_per_process(runtime: PipelineRuntime) -> None:
    """Ours has one gRPC socket per process where the reference has several per stage."""
    addresses = runtime.endpoints.addresses
    assert list(addresses) == [group.name for group in runtime.process_plan.all_groups]
    assert len(set(addresses.values())) == len(addresses)
    for address in addresses.values():
        assert address.startswith(f"unix:{runtime.endpoints.run_directory}/")
        assert len(address.removeprefix("unix:").encode()) <= MAX_SOCKET_PATH_BYTES
