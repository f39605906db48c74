"""What the operator knows: the newest version of each object, whoever tells it and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_operator.controller.resources import CONFIG_MAPS, PIPELINES, PODS, Resource
from omni_operator.controller.store import Store
from omni_operator.controller.watched import PipelineKey, watched
from omni_operator.names import API_VERSION, KIND, LABEL_PIPELINE

KEY = ("team", "tts")
OTHER = ("team", "asr")


def config_map(version: int, uid: str = "u", pipeline: str | None = "tts") -> dict[str, Any]:
    labels = {LABEL_PIPELINE: pipeline} if pipeline else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": uid,
            "namespace": "team",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels,
        },
        "data": {"version": str(version)},
    }


class Told:
    """A store, and the pipelines that it said something happened to."""

    def __init__(self) -> None:
        self.changes: list[tuple[PipelineKey, Resource]] = []
        self.store = Store(lambda key, resource: self.changes.append((key, resource)))
        self.store.keep(watched([CONFIG_MAPS]))

    @property
    def versions(self) -> list[str]:
        return [one["data"]["version"] for one in self.store.of_pipeline(KEY, CONFIG_MAPS)]


@pytest.fixture
def told() -> Told:
    return Told()


def test_an_object_is_found_by_its_pipeline(told: Told) -> None:
    told.store.heard(CONFIG_MAPS, config_map(3))
    told.store.heard(CONFIG_MAPS, config_map(4, "v", "asr"))
    assert told.versions == ["3"]
    assert [one["metadata"]["uid"] for one in told.store.owned(OTHER)] == ["v"]
    assert told.changes == [(KEY, CONFIG_MAPS), (OTHER, CONFIG_MAPS)]


def test_an_object_of_nobody_is_not_kept(told: Told) -> None:
    told.store.heard(CONFIG_MAPS, config_map(3, pipeline=None))
    assert len(told.store) == 0
    assert told.changes == []


def test_an_object_that_changes_hands_is_news_to_both(told: Told) -> None:
    told.store.heard(CONFIG_MAPS, config_map(3))
    told.changes.clear()
    told.store.heard(CONFIG_MAPS, config_map(4, pipeline="asr"))
    assert told.versions == []
    assert told.changes == [(KEY, CONFIG_MAPS), (OTHER, CONFIG_MAPS)]


def test_the_echo_of_a_write_is_no_news(told: Told) -> None:
    told.store.written(config_map(3))
    told.changes.clear()
    told.store.heard(CONFIG_MAPS, config_map(2))
    told.store.heard(CONFIG_MAPS, config_map(3))
    assert told.versions == ["3"]
    assert told.changes == []


def test_an_answer_that_comes_after_the_end_brings_nothing_back(told: Told) -> None:
    told.store.heard(CONFIG_MAPS, config_map(3))
    told.store.ended(CONFIG_MAPS, config_map(5))
    told.store.written(config_map(4))
    told.store.listed(CONFIG_MAPS, config_map(4))
    assert len(told.store) == 0


def test_an_object_that_gets_its_labels_back_is_known_again(told: Told) -> None:
    told.store.heard(CONFIG_MAPS, config_map(3))
    told.store.ended(CONFIG_MAPS, config_map(5))
    told.store.written(config_map(6))
    assert told.versions == ["6"]


def test_an_end_that_is_told_late_does_not_take_what_is_newer(told: Told) -> None:
    told.store.written(config_map(6))
    told.store.ended(CONFIG_MAPS, config_map(5))
    assert told.versions == ["6"]


def test_what_a_list_lacks_is_gone_unless_it_came_later_or_is_elsewhere(told: Told) -> None:
    elsewhere = config_map(3, "elsewhere")
    elsewhere["metadata"]["namespace"] = "other"
    for one in (config_map(3), config_map(4, "listed"), config_map(9, "later"), elsewhere):
        told.store.heard(CONFIG_MAPS, one)
    told.changes.clear()
    assert told.store.unlisted(CONFIG_MAPS, "team", {"listed"}, version=8) == 1
    assert sorted(told.versions) == ["4", "9"]
    assert len(told.store) == 3
    assert told.changes == [(KEY, CONFIG_MAPS)]


def test_a_watch_is_behind_until_it_has_told_what_a_list_has(told: Told) -> None:
    told.store.listed(CONFIG_MAPS, config_map(3))
    assert told.store.is_behind(CONFIG_MAPS, "u", 3)
    told.store.heard(CONFIG_MAPS, config_map(3))
    assert not told.store.is_behind(CONFIG_MAPS, "u", 3)
    told.store.written(config_map(4))
    assert told.store.is_behind(CONFIG_MAPS, "u", 4)
    told.store.ended(CONFIG_MAPS, config_map(5))
    assert not told.store.is_behind(CONFIG_MAPS, "u", 4), "it told the end"


def test_a_kind_that_is_no_longer_served_is_dropped_and_the_others_stay(told: Told) -> None:
    told.store.heard(CONFIG_MAPS, config_map(3))
    told.store.heard(PODS, config_map(4, "pod") | {"kind": "Pod"})
    told.store.keep(watched([]))
    assert len(told.store) == 1
    assert list(told.store.owned(KEY)) == []


def test_of_a_pipeline_the_writers_of_its_fields_are_kept_and_of_others_not(told: Told) -> None:
    managers = [{"manager": "kubectl"}, {"manager": "omnipipe", "subresource": "status"}]
    made = config_map(3, "tts") | {"apiVersion": API_VERSION, "kind": KIND}
    made["metadata"]["managedFields"] = managers
    told.store.heard(PIPELINES, made)
    told.store.heard(CONFIG_MAPS, made | {"apiVersion": "v1", "kind": "ConfigMap"})
    found = told.store.pipeline(KEY)
    assert found is not None
    assert found["metadata"]["managedFields"] == managers[:1]
    (owned,) = told.store.owned(KEY)
    assert "managedFields" not in owned["metadata"]


@given(order=st.permutations(range(1, 8)), last_is_end=st.booleans())
def test_the_newest_version_wins_in_whatever_order_they_come(
    order: list[int], last_is_end: bool
) -> None:
    told = Told()
    for version in order:
        one = config_map(version)
        if version == 7 and last_is_end:
            told.store.ended(CONFIG_MAPS, one)
        elif version % 3 == 0:
            told.store.written(one)
        elif version % 3 == 1:
            told.store.heard(CONFIG_MAPS, one)
        else:
            told.store.listed(CONFIG_MAPS, one)
    assert told.versions == ([] if last_is_end else ["7"])
