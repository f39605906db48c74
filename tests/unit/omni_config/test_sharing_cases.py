"""The cases about processes that share a card: through MPS, and one copy of the weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from omni_config.planning.mps import CLIENT_TOKEN_VARIABLE, STATE_ROOT_VARIABLE, MpsDecision
from omni_config.planning.weight_share import RUN_ID_VARIABLE, WeightShareDecision
from tests.support.config import Case
from tests.support.planning import accepted, plan_case, planning_cases


@pytest.mark.parametrize("case", planning_cases("mps"), ids=lambda case: case["id"])
def test_mps_is_decided_as_the_case_says(case: Case) -> None:
    expected = case["expected"]
    given = {**case["input"], "environ": _with_state_root(case["input"].get("environ", {}))}
    runtime = accepted(lambda: plan_case(given), expected)
    if runtime is None:
        return
    decision = runtime.mps
    assert decision.reason
    assert all(card.reason for card in decision.cards)
    assert (decision.decision == "on") == bool(expected["mps"])
    assert _enabled(decision) == (expected["mps"] or {})
    assert _masked(decision.environment, {CLIENT_TOKEN_VARIABLE: "<TOKEN>"}) == (
        expected.get("env", {})
    )
    assert _reduced(runtime.warnings) == _reduced(expected.get("warnings", ()))


@pytest.mark.parametrize("case", planning_cases("weight-share"), ids=lambda case: case["id"])
def test_weights_are_shared_as_the_case_says(case: Case) -> None:
    expected = case["expected"]
    runtime = accepted(lambda: plan_case(case["input"]), expected)
    if runtime is None:
        return
    decision = runtime.weight_share
    assert decision.reason
    assert list(runtime.warnings) == expected.get("warnings", [])
    assert (decision.decision == "on") == ("groups" in expected)
    if decision.decision == "off":
        return
    run = runtime.endpoints.run_directory
    assert _shares(decision, run) == expected["groups"]
    assert list(decision.starts_last) == expected["starts_last"]
    environment = _masked(decision.environment, {RUN_ID_VARIABLE: "<RUN_ID>"})
    assert _without_run(environment, run) == expected["env"]


def _with_state_root(environ: Mapping[str, str]) -> dict[str, str]:
    return {STATE_ROOT_VARIABLE: "/s", **environ}


def _enabled(decision: MpsDecision) -> dict[str, Any]:
    return {
        card.card: {"gpus": list(card.gpu_ids), "clients": list(card.clients)}
        for card in decision.enabled_cards
    }


def _shares(decision: WeightShareDecision, run: str) -> list[dict[str, Any]]:
    return [
        {
            "process": share.process,
            "gpu": share.gpu_id,
            "leader": share.leader,
            "followers": list(share.followers),
            "store": share.store.replace(run, "<RUN>"),
        }
        for share in decision.groups
    ]


def _masked(
    environment: Mapping[str, Mapping[str, str]], masks: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    return {
        process: {key: masks.get(key, value) for key, value in variables.items()}
        for process, variables in environment.items()
    }


def _without_run(
    environment: Mapping[str, Mapping[str, str]], run: str
) -> dict[str, dict[str, str]]:
    return {
        process: {key: value.replace(run, "<RUN>") for key, value in variables.items()}
        for process, variables in environment.items()
    }


def _reduced(warnings: tuple[str, ...] | list[str]) -> list[str]:
    """Drop the paths that our warnings add to the reference's sentence."""
    return [re.sub(r" \(stages\.[^)]*\)", "", warning) for warning in warnings]
