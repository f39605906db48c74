"""From `kubectl apply` to answers, and what happens to answers while pods come and go."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from omni_client import OmniClient
from omni_wire.errors import ServiceError
from tests.support.node import Pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

WORD_SAMPLES = 960
STAGE_PORT = 50051
WORKERS = 4


def ask(client: OmniClient, number: int) -> str:
    """Return `right`, `wrong`, or the name of the error that the client got."""
    try:
        answer = client.chat(f"this is {number}", modalities=["text"])
    except ServiceError as error:
        return type(error).__name__ + (" (retryable)" if error.retryable else "")
    return "right" if answer.text == f"You said: this is {number}" else "wrong"


@contextmanager
def load(client: OmniClient) -> Iterator[Counter[str]]:
    """Ask without pause from several threads; the counter fills while the block runs."""
    outcomes: Counter[str] = Counter()
    ending, lock = threading.Event(), threading.Lock()

    def work(worker: int) -> None:
        number = worker
        while not ending.is_set():
            outcome = ask(client, number)
            with lock:
                outcomes[outcome] += 1
            number += WORKERS

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def test_a_pipeline_answers_in_words_and_sound(parrot: Pipeline) -> None:
    with parrot.client() as client:
        answer = client.chat("good morning", modalities=["text", "audio"])

    assert answer.text == "You said: good morning"
    assert answer.audio is not None
    assert len(answer.audio.samples) == WORD_SAMPLES * len(answer.text.split(" "))


def test_kubectl_describe_tells_who_set_what(parrot: Pipeline) -> None:
    status = parrot.object()["status"]

    assert status["groupsReady"] == "1/1"
    changed = {row["path"]: row["from"] for row in status["config"]["changed"]}
    assert changed["name"].startswith("spec.config")


def test_no_request_is_lost_while_a_changed_setting_rolls_out(parrot: Pipeline) -> None:
    before = parrot.pods("chat")
    with parrot.client() as client, load(client) as outcomes:
        parrot.patch({"overrides": [{"path": "writer.factory.step_seconds", "value": 0.001}]})
        parrot.wait_ready()

    print(f"roll-out under load: {dict(outcomes)}")
    assert set(outcomes) == {"right"}
    assert not set(before) & set(parrot.pods("chat"))


def test_a_deleted_pod_fails_requests_at_most_retryably(parrot: Pipeline) -> None:
    with parrot.client() as client, load(client) as outcomes:
        parrot.kubectl("delete", "pod", *parrot.pods("chat"))
        parrot.wait_ready()

    print(f"pod deleted under load: {dict(outcomes)}")
    assert outcomes["right"] > 0
    assert all(one == "right" or one.endswith("(retryable)") for one in outcomes), outcomes


def test_a_stage_refuses_who_has_no_certificate_of_the_pipeline(parrot: Pipeline) -> None:
    pod = parrot.pods("chat")[0]
    address = parrot.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")

    with (
        grpc.insecure_channel(f"{address}:{STAGE_PORT}") as channel,
        pytest.raises(grpc.FutureTimeoutError),
    ):
        grpc.channel_ready_future(channel).result(timeout=3)
