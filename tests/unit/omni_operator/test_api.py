"""Reading objects: defaults, refusals with field paths, YAML's surprises."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from omni_config.errors import ConfigError
from tests.support.objects import REFUSED, Refused, read, speech, view


def test_an_object_needs_little_more_than_a_configuration() -> None:
    spec = read(speech()).spec
    assert spec.gpu_sharing.mode == "Auto"
    assert spec.gateway.replicas == 1
    assert spec.rollout.type == "Surge"
    assert spec.group("thinker").scaling.replicas == 1
    assert spec.network_policy.enabled


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_rules_hold_without_an_api_server(case: Refused) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(case.manifest)
    assert case.says in str(refusal.value)


@pytest.mark.parametrize(
    ("spec", "path", "suggestion"),
    [
        pytest.param({"gatway": {}}, "spec.gatway", "gateway", id="at the top"),
        pytest.param(
            {"groups": {"thinker": {"scaling": {"replcas": 2}}}},
            "spec.groups.thinker.scaling.replcas",
            "replicas",
            id="inside a map",
        ),
        pytest.param(
            {"profileRefs": [{"name": "a", "kye": "b"}]},
            "spec.profileRefs.0.kye",
            "key",
            id="inside a list",
        ),
    ],
)
def test_a_misspelt_field_is_refused_with_the_nearest_one(
    spec: dict[str, Any], path: str, suggestion: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(speech(**spec))
    (problem,) = refusal.value.problems
    assert problem.path == path
    assert suggestion in problem.suggestions


def test_every_problem_is_told_at_once() -> None:
    manifest = speech(gatway={}, rollout={"historyLimit": -1}, images={"pullPolicy": "Sometimes"})
    with pytest.raises(ConfigError) as refusal:
        read(manifest)
    paths = {problem.path for problem in refusal.value.problems}
    assert paths == {"spec.gatway", "spec.rollout.historyLimit", "spec.images.pullPolicy"}


def test_another_kind_is_not_taken_for_a_pipeline() -> None:
    with pytest.raises(ConfigError, match="kind must be OmniPipeline"):
        read({**speech(), "kind": "Deployment"})


@pytest.mark.parametrize(("written", "means"), [("on", "on"), ("off", "off"), ('"auto"', "auto")])
def test_switches_may_be_written_bare(written: str, means: str) -> None:
    manifest = speech()
    manifest["spec"]["config"]["mps"] = yaml.safe_load(written)
    assert view(manifest).config.mps == means


def test_status_of_another_operator_version_is_passed_over() -> None:
    manifest = {**speech(), "status": {"observedGeneration": 3, "fromTheFuture": {"x": 1}}}
    assert read(manifest).status.observed_generation == 3
