"""The tiny Qwen3-Omni as pods answers what transformers answers to the same checkpoint."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest

from omni_client import OmniClient
from tests.support import pod_speech
from tests.support.fake_gpus.mps import programs
from tests.support.node import Node
from tests.support.pod_speech import (
    ANSWER_SECONDS,
    GROUPS,
    ON_GPUS,
    SpeechModel,
    ask,
    ask_often,
    fault_of,
    speaking,
)

pytestmark = [
    pytest.mark.node,
    pytest.mark.storm,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]

REQUESTS = 8


def speakers(url: str) -> Iterator[str]:
    """Yield the talker of every request that the gateway remembers."""
    with urllib.request.urlopen(f"{url}/v1/requests") as answer:
        for request in json.load(answer)["requests"]:
            yield from (
                span["instance"] for span in request["stages"] if span["stage"] == "talker_ar"
            )


def test_speech_in_pods_is_transformers_own(node: Node, model: SpeechModel) -> None:
    with (
        speaking(node, model, pod_speech.speech()) as pipeline,
        pipeline.client(ANSWER_SECONDS) as client,
    ):
        assert len(pipeline.pods()) == len(GROUPS) + 1
        assert fault_of(ask(client), model.expected) == ""


def test_text_in_pods_is_transformers_own(node: Node, model: SpeechModel) -> None:
    with (
        speaking(node, model, pod_speech.text_only()) as pipeline,
        pipeline.client(ANSWER_SECONDS) as client,
    ):
        answer = ask(client, ("text",))

    assert answer.token_ids == model.expected.text_ids.tolist()


def test_requests_are_spread_over_two_talkers(node: Node, model: SpeechModel) -> None:
    with (
        speaking(node, model, pod_speech.two_talkers()) as pipeline,
        pipeline.reachable() as (address, url),
        OmniClient(address, timeout_seconds=ANSWER_SECONDS) as client,
    ):
        faults = ask_often(client, model.expected, REQUESTS)
        spoke = Counter(speakers(url))

    assert faults == []
    print(f"requests by talker: {dict(spoke)}")
    assert set(spoke) == {"talker_ar@r0", "talker_ar@r1"}
    assert sum(spoke.values()) >= REQUESTS


def test_speech_of_pods_on_one_device_is_transformers_own(node: Node, model: SpeechModel) -> None:
    with (
        speaking(node, model, pod_speech.on_one_claim()) as pipeline,
        pipeline.client(ANSWER_SECONDS) as client,
    ):
        (claim,) = pipeline.read("resourceclaims")["items"]
        names = {pod for group in GROUPS for pod in pipeline.pod_names(group)}
        assert len(names) == len(GROUPS)
        assert {one["name"] for one in claim["status"]["reservedFor"]} == names
        assert fault_of(ask(client), model.expected) == ""


def test_speech_of_one_pod_with_an_mps_sidecar_is_transformers_own(
    node: Node, model: SpeechModel
) -> None:
    with (
        speaking(node, model, pod_speech.colocated(), programs()) as pipeline,
        pipeline.client(ANSWER_SECONDS) as client,
    ):
        (pod,) = pipeline.pods("gpu0")
        assert [one["name"] for one in pod["status"]["initContainerStatuses"]] == ["mps"]
        assert len(pod["spec"]["containers"]) == len(ON_GPUS)
        (told,) = [one for one in pipeline.object()["status"]["groups"] if one["name"] == "gpu0"]
        assert told["mps"] == f"attached {len(ON_GPUS)}/{len(ON_GPUS)}"
        assert fault_of(ask(client), model.expected) == ""
