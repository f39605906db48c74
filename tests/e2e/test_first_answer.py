"""From `kubectl apply` to answers, and who is let in."""

from __future__ import annotations

import time

import grpc
import pytest

from tests.support.cluster_load import WORD_SAMPLES
from tests.support.node import Node, Pipeline
from tests.support.parrot import parrot_of_three
from tests.support.start_times import start_times

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(2400)]

STAGE_PORT = 50051
LONGEST_POLL_SECONDS = 1


def test_a_pipeline_is_ready_and_answers_without_waiting_for_a_poll(node: Node) -> None:
    manifest = parrot_of_three()
    with node.namespace() as namespace:
        pipeline = Pipeline(node, namespace, manifest["metadata"]["name"])
        with start_times(pipeline) as times:
            began = time.monotonic()
            pipeline.apply(manifest)
            pipeline.wait_ready()
            ready = time.monotonic() - began
            with pipeline.client() as client:
                answer = client.chat("good morning", modalities=["text", "audio"])
            first = time.monotonic() - began
            print(f"\nReady {ready:.1f} s after kubectl apply, first answer {first:.1f} s")
            print(times.table())

        assert answer.text == "You said: good morning"
        assert answer.audio is not None
        assert len(answer.audio.samples) == WORD_SAMPLES * len(answer.text.split(" "))
        for pod in pipeline.pods():
            for container in pod["spec"]["containers"]:
                for probe in ("startupProbe", "readinessProbe"):
                    assert container[probe]["periodSeconds"] <= LONGEST_POLL_SECONDS


def test_the_object_tells_who_set_what(small: Pipeline) -> None:
    status = small.object()["status"]

    assert status["groupsReady"] == "1/1"
    changed = {row["path"]: row["from"] for row in status["config"]["changed"]}
    assert changed["name"].startswith("spec.config")
    described = small.kubectl("describe", "omni", small.name)
    assert "Type:" in described
    assert "Events:" in described


def test_a_stage_refuses_who_has_no_certificate_of_the_pipeline(small: Pipeline) -> None:
    address = small.pods("chat")[0]["status"]["podIP"]

    with (
        grpc.insecure_channel(f"{address}:{STAGE_PORT}") as channel,
        pytest.raises(grpc.FutureTimeoutError),
    ):
        grpc.channel_ready_future(channel).result(timeout=3)
