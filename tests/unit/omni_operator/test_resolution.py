"""Who set each value, whom that superseded, and where a problem is to be fixed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omni_config.errors import ConfigError
from omni_models.catalog import registry
from omni_operator.api.status import ChangedSetting
from omni_operator.managers import field_managers
from omni_operator.resolution import MAX_CHANGED, MAX_TEXT, ResolvedPipeline, config_status
from omni_operator.resolution import resolve_pipeline as resolve
from tests.support.objects import read, speech, stage

PROFILE = {
    ("team", "config.yaml"): "stages:\n  thinker:\n    engine:\n      max_running_requests: 4\n"
}
RUNNING = "stages.thinker.engine.max_running_requests"


def resolved(
    manifest: dict[str, Any], profiles: dict[tuple[str, str], str] | None = None
) -> ResolvedPipeline:
    return resolve(read(manifest), profiles or {}, registry())


def changed(
    manifest: dict[str, Any], profiles: dict[tuple[str, str], str] | None = None
) -> dict[str, ChangedSetting]:
    rows = config_status(resolved(manifest, profiles), "cm").changed
    return {row.path: row for row in rows}


def owned(manager: str, time: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Apply",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def test_a_row_names_winner_and_superseded() -> None:
    manifest = stage(speech(), "thinker", engine={"max_running_requests": 8})
    manifest["spec"]["profileRefs"] = [{"name": "team"}]
    manifest["spec"]["overrides"] = [{"path": "thinker.engine.max_running_requests", "value": 16}]
    row = changed(manifest, PROFILE)[RUNNING]
    assert row.value == "16"
    assert row.from_ == "spec.overrides[0]"
    assert row.over == "spec.config 8; profile team/config.yaml:4 4; default null"


Fields = dict[str, Any]


def test_field_managers_are_named() -> None:
    manifest = stage(speech(), "thinker", engine={"max_running_requests": 8})
    manifest["spec"]["overrides"] = [{"path": "talker_ar.tp_size", "value": 1}]
    path: Fields = {
        "f:spec": {
            "f:config": {
                "f:stages": {"f:thinker": {"f:engine": {".": {}, "f:max_running_requests": {}}}}
            }
        }
    }
    override: Fields = {
        "f:spec": {"f:overrides": {'k:{"path":"talker_ar.tp_size"}': {".": {}, "f:value": {}}}}
    }
    manifest["metadata"]["managedFields"] = [
        owned("argocd", "2025-01-01T00:00:00Z", path),
        owned("tuner", "2025-01-02T00:00:00Z", override),
    ]
    assert changed(manifest)[RUNNING].from_ == "spec.config by argocd"
    provenance = {row["path"]: row for row in json.loads(resolved(manifest).provenance)}
    assert provenance["stages.talker_ar.tp_size"]["writes"][-1]["manager"] == "tuner"


def test_of_several_managers_the_latest_is_named() -> None:
    fields: Fields = {"f:spec": {"f:config": {"f:name": {}}}}
    entries = [
        owned("late", "2025-01-02T00:00:00Z", fields),
        owned("early", "2025-01-01T00:00:00Z", fields),
        {**owned("status-writer", "2025-01-03T00:00:00Z", fields), "subresource": "status"},
    ]
    assert field_managers(entries, ("spec", "config")) == {("name",): "late"}


def test_the_model_of_the_object_is_where_pods_find_it() -> None:
    manifest = speech(model={"repo": "Qwen/Q", "revision": "v1"})
    del manifest["spec"]["config"]["model_path"]
    config = resolved(manifest).resolution.config
    assert config.model_path == "/models/Qwen--Q/v1"
    assert config.display_name == "Qwen/Q"


def test_status_is_capped_and_short() -> None:
    manifest = speech()
    manifest["spec"]["config"]["env_defaults"] = {f"V{n:03}": "x" * 300 for n in range(MAX_CHANGED)}
    status = config_status(resolved(manifest), "cm")
    assert len(status.changed) == MAX_CHANGED
    assert status.omitted > 0
    assert all(len(row.value) <= MAX_TEXT for row in status.changed)


@pytest.mark.parametrize(
    ("manifest", "path", "suggestion"),
    [
        pytest.param(stage(speech(), "thinkr"), "spec.config.stages.thinkr", "thinker", id="stage"),
        pytest.param(
            stage(speech(), "thinker", gpuu=1),
            "spec.config.stages.thinker.gpuu",
            "thinker.gpu",
            id="setting",
        ),
        pytest.param(
            speech(overrides=[{"path": "thinkr.gpu", "value": 1}]),
            "spec.overrides[0]",
            "thinker",
            id="override",
        ),
    ],
)
def test_a_misspelt_setting_points_at_the_object(
    manifest: dict[str, Any], path: str, suggestion: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        resolved(manifest)
    (problem,) = refusal.value.problems
    assert problem.path == path
    assert any(suggestion in one for one in problem.suggestions)


def test_a_problem_of_the_plan_points_at_the_object() -> None:
    with pytest.raises(ConfigError) as refusal:
        resolved(stage(speech(), "talker_ar", gpu=0))
    assert {one.path for one in refusal.value.problems} >= {"spec.config.stages.talker_ar.gpu"}


def test_a_problem_of_a_profile_points_at_its_line() -> None:
    text = "stages:\n  thinker:\n    gpu_memory_fracton: 0.5\n"
    with pytest.raises(ConfigError) as refusal:
        resolved(speech(profileRefs=[{"name": "team"}]), {("team", "config.yaml"): text})
    assert refusal.value.problems[0].where == "team/config.yaml:3"


def test_a_missing_profile_is_a_problem_unless_it_is_optional() -> None:
    with pytest.raises(ConfigError, match=r"'team' with key 'config\.yaml' does not"):
        resolved(speech(profileRefs=[{"name": "team"}]))
    assert resolved(speech(profileRefs=[{"name": "team", "optional": True}]))
