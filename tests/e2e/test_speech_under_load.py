"""What happens to speech in pods costs at most the requests it holds; no answer is ever wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.faults import Scene
from tests.support import pod_speech
from tests.support.node import Node, Pipeline
from tests.support.pod_speech import ANSWER_SECONDS, GROUPS, SpeechModel

pytestmark = [
    pytest.mark.node,
    pytest.mark.storm,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]


@pytest.fixture(scope="module")
def speech(node: Node, model: SpeechModel) -> Iterator[Pipeline]:
    """The tiny Qwen3-Omni, a pod for each group, Ready."""
    with pod_speech.speaking(node, model, pod_speech.speech()) as pipeline:
        yield pipeline


@pytest.fixture
def scene(node: Node, speech: Pipeline, model: SpeechModel) -> Iterator[Scene]:
    """The same under load: a picture and a sound in, text and speech out."""
    overrides = speech.object()["spec"]["overrides"]
    with (
        speech.client(ANSWER_SECONDS) as client,
        pod_speech.speech_load(client, model.expected) as load,
    ):
        yield Scene(node, speech, load, overrides)


def test_a_changed_setting_of_the_talker_restarts_nothing_else(scene: Scene) -> None:
    others = [group for group in GROUPS if group != "talker_ar"]
    before = {group: scene.pipeline.pod_names(group) for group in GROUPS}
    changed = {"path": "talker_ar.engine.max_prefill_tokens", "value": 8192}

    row = scene.during(
        "speech: setting of the talker changed",
        lambda: scene.pipeline.patch({"overrides": [*scene.overrides, changed]}),
    )

    assert row.failed == row.bad == 0
    assert {group: scene.pipeline.pod_names(group) for group in others} == {
        group: before[group] for group in others
    }
    assert not set(before["talker_ar"]) & set(scene.pipeline.pod_names("talker_ar"))


def test_the_talker_grows_and_shrinks(scene: Scene) -> None:
    def scale(replicas: int) -> None:
        scene.pipeline.patch({"groups": {"talker_ar": {"scaling": {"replicas": replicas}}}})
        scene.pipeline.wait_ready()
        assert len(scene.pipeline.pods("talker_ar")) == replicas

    grown = scene.during("speech: talker scaled from 1 pod to 3", lambda: scale(3))
    shrunk = scene.during("speech: and back to 1", lambda: scale(1))

    assert grown.failed == grown.bad == shrunk.failed == shrunk.bad == 0


@pytest.mark.parametrize("group", GROUPS)
def test_a_deleted_pod_fails_its_requests_at_most_retryably(scene: Scene, group: str) -> None:
    row = scene.during(
        f"speech: only pod of group `{group}` deleted",
        lambda: scene.pipeline.kubectl("delete", "pod", *scene.pipeline.pod_names(group)),
    )

    assert row.bad == 0
