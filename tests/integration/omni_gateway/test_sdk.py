"""The SDK against a gateway: both clients, uploads, deadlines, keys, TLS, leaving early."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omni_client import (
    AsyncOmniClient,
    AudioChunk,
    Finished,
    Message,
    OmniClient,
    Retries,
    Sampling,
    Started,
    TextDelta,
    Tls,
    Usage,
    image,
)
from omni_gateway.access.guard import Guard
from omni_gateway.access.keys import ApiKey, digest_of
from omni_gateway.clients import Clients
from omni_gateway.errors import RateLimited, Unauthenticated
from omni_wire.credentials import ServerTls
from omni_wire.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ServiceError,
    StageFailed,
    Unavailable,
)
from tests.support.certificates import SERVER_NAME, authority
from tests.support.chat_gateway import MODEL, SAMPLE_RATE, WORD_SAMPLES, ChatGateway, chat_gateway

KEY = "omni-test"
NO_RETRIES = Retries(attempts=1)


def test_events_come_in_order_and_make_the_answer(parrot: ChatGateway) -> None:
    with OmniClient(parrot.target) as client, client.stream("hello there", voice="ethan") as stream:
        events = list(stream)
    assert isinstance(events[0], Started)
    assert events[0].model == MODEL
    assert [type(event) for event in events[-2:]] == [Usage, Finished]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "You said: hello there"
    sound = [event for event in events if isinstance(event, AudioChunk)]
    assert [chunk.sample_offset for chunk in sound] == [WORD_SAMPLES * n for n in range(4)]
    assert all(chunk.sample_rate == SAMPLE_RATE for chunk in sound)


def test_stages_tell_when_they_worked_on_a_request_where_that_is_wanted(
    parrot: ChatGateway,
) -> None:
    with OmniClient(parrot.target) as client:
        answer = client.chat("hello", stage_events=True)
        assert client.chat("hello").stages == ()
    seen = [(one.stage, one.phase) for one in answer.stages]
    assert seen[0] == ("writer", "started")
    assert sorted(seen) == sorted(
        (stage, phase)
        for stage in ("writer", "decode", "code2wav")
        for phase in ("started", "first_output", "finished")
    )
    times = [one.seconds for one in answer.stages]
    assert times == sorted(times)
    assert all(one.instance == one.stage for one in answer.stages)


def test_a_failure_comes_after_what_was_made_before(parrot: ChatGateway) -> None:
    texts: list[str] = []

    def read(client: OmniClient) -> None:
        with client.stream("so (fail)") as stream:
            texts.extend(event.text for event in stream if isinstance(event, TextDelta))

    with (
        OmniClient(parrot.target, retries=NO_RETRIES) as client,
        pytest.raises(StageFailed) as failure,
    ):
        read(client)
    assert "You said: so ".startswith("".join(texts))
    assert failure.value.details.get("made_tokens", "0") == str(len("".join(texts).split()))


async def test_both_clients_say_the_same(parrot: ChatGateway) -> None:
    messages = [Message.system("Repeat."), Message.user("hello", image(b"png"))]
    with OmniClient(parrot.target) as client:
        plain = client.chat(messages, sampling=Sampling(max_tokens=3))
    async with AsyncOmniClient(parrot.target) as other:
        same = await other.chat(messages, sampling=Sampling(max_tokens=3))
        spoken = await other.speech("hi")
    assert plain.text == same.text == "You said: hello "
    assert plain.finish_reason == "length"
    assert plain.audio is not None
    assert same.audio is not None
    np.testing.assert_array_equal(plain.audio.samples, same.audio.samples)
    assert spoken.seconds > 0


@pytest.mark.parametrize("size", [100, 17 << 20])
async def test_small_files_go_inside_the_request_and_large_ones_in_parts(
    parrot: ChatGateway, size: int
) -> None:
    picture = image(b"x" * size)
    with OmniClient(parrot.target) as client:
        assert client.chat(["see", picture]).text == "You said: see (with 1 image)"
    async with AsyncOmniClient(parrot.target) as other:
        assert (await other.chat(["see", picture])).text == "You said: see (with 1 image)"


def test_several_answers_are_told_apart(parrot: ChatGateway) -> None:
    with OmniClient(parrot.target) as client:
        found = list(client.stream("hi", choices=2, modalities=["text"]))
    texts = {0: "", 1: ""}
    for event in found:
        if isinstance(event, TextDelta):
            texts[event.choice] += event.text
    assert texts == {0: "You said: hi", 1: "You said: hi"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"voice": "nobody"}, "speaker"),
        ({"model": "other"}, "model"),
        ({"choices": 99}, "choices"),
        ({"audio_encoding": "aac"}, "audio.encoding"),
        ({"sampling": Sampling(logprobs=True)}, ""),
        ({"params": {"surprise": 1}}, ""),
    ],
)
def test_what_is_wrong_is_named(
    parrot: ChatGateway, options: dict[str, object], field: str
) -> None:
    with OmniClient(parrot.target) as client, pytest.raises(ServiceError) as caught:
        client.chat("hi", **options)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.info.status in ("INVALID_ARGUMENT", "NOT_FOUND")
    assert caught.value.info.details.get("field", "") == field


async def test_leaving_early_ends_the_request_everywhere(parrot: ChatGateway) -> None:
    with OmniClient(parrot.target) as client, client.stream("count 100000") as stream:
        assert isinstance(next(stream), Started)
    async with (
        AsyncOmniClient(parrot.target) as other,
        other.stream("count 100000", sampling=Sampling(max_tokens=100_000)) as events,
    ):
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert parrot.settled()


def test_a_deadline_ends_a_request() -> None:
    with (
        chat_gateway(settings="stages: {writer: {factory: {step_seconds: 0.05}}}") as gateway,
        OmniClient(gateway.target, retries=NO_RETRIES) as client,
    ):
        with pytest.raises(DeadlineExceeded):
            client.chat("count 1000", timeout_seconds=0.2)
        assert gateway.settled()


def test_without_a_gateway_a_client_tries_again_and_then_says_so() -> None:
    retries = Retries(attempts=3, first_wait_seconds=0.01)
    with OmniClient("127.0.0.1:1", retries=retries) as client, pytest.raises(Unavailable):
        client.chat("hi")


def test_keys_and_certificates(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(ApiKey("app", digest_of(KEY), requests_per_minute=2).line)
    files = authority().issue(tmp_path / "gateway", "gateway")
    certificate = ServerTls(files.certificate, files.private_key)
    clients = Clients(Guard(keys), certificate, certificate)
    tls = Tls(authority=files.authority, server_name=SERVER_NAME)
    with chat_gateway(clients) as gateway:
        with OmniClient(gateway.target, tls=tls, api_key=KEY, retries=NO_RETRIES) as client:
            assert client.pipeline().ready
            assert client.chat("hi", modalities=["text"]).text == "You said: hi"
            client.chat("hi")
            with pytest.raises(ServiceError) as limited:
                client.chat("hi")
        assert limited.value.info.reason == RateLimited.reason
        assert float(limited.value.details["retry_after_seconds"]) > 1
        for wrong in ("omni-other", None):
            with OmniClient(gateway.target, tls=tls, api_key=wrong) as stranger:
                with pytest.raises(ServiceError) as refused:
                    stranger.chat("hi")
                assert refused.value.info.reason == Unauthenticated.reason
        assert gateway.url.startswith("https://")


def test_a_message_that_means_nothing_never_leaves(parrot: ChatGateway) -> None:
    with OmniClient(parrot.target) as client:
        for messages in ([], [3], [{"role": 1}], [image("no/such/file.png")]):
            with pytest.raises(InvalidRequest):
                client.chat(messages)  # type: ignore[arg-type]  # wrong on purpose
