"""The SDK against a gateway: both clients, uploads, deadlines, keys, TLS, leaving early."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest

from omni_client import (
    AsyncOmniClient,
    AudioChunk,
    Finished,
    JsonSchema,
    Message,
    OmniClient,
    Retries,
    Sampling,
    Started,
    TextDelta,
    Tls,
    Tool,
    Usage,
    image,
)
from omni_gateway.access.guard import Guard
from omni_gateway.access.keys import ApiKey, digest_of
from omni_gateway.clients import Clients
from omni_gateway.errors import RateLimited, Unauthenticated
from omni_wire.credentials import MutualTls, ServerTls
from omni_wire.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ServiceError,
    StageFailed,
    Unavailable,
)
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.support.certificates import SERVER_NAME, authority
from tests.support.chat_gateway import MODEL, SAMPLE_RATE, WORD_SAMPLES, ChatGateway, chat_gateway
from tests.support.patience import PATIENT_SECONDS

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


async def test_single_stages_can_be_told_how_to_work(parrot: ChatGateway) -> None:
    async with AsyncOmniClient(parrot.target) as client:
        answer = await client.chat(
            "one two three",
            sampling=Sampling(max_tokens=5),
            stage_sampling={"writer": Sampling(max_tokens=3)},
            stage_params={"code2wav": {"speaker": "chelsie"}},
        )
        other = await client.chat("one two three", sampling=Sampling(max_tokens=3))
        with pytest.raises(InvalidRequest, match="known: max_tokens") as refused:
            await client.chat("hi", stage_sampling={"writer": Sampling(top_p=0.5)})
    assert (answer.text, answer.finish_reason) == ("You said: one ", "length")
    assert answer.audio is not None
    assert other.audio is not None
    assert not np.array_equal(answer.audio.samples, other.audio.samples)
    assert refused.value.details["field"] == "stage_sampling.writer.top_p"


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


def test_a_whole_answer_over_grpc_tells_of_its_stages_too(parrot: ChatGateway) -> None:
    message = pb.Message(role="user", content=[pb.ContentPart(text="hi")])
    request = pb.GenerateRequest(messages=[message], stage_events=True)
    with grpc.insecure_channel(parrot.target) as channel:
        (choice,) = pb_grpc.GatewayServiceStub(channel).Generate(request).choices
    assert choice.text == "You said: hi"
    assert choice.audio.samples == 3 * WORD_SAMPLES
    assert {one.stage for one in choice.stages} == {"writer", "decode", "code2wav"}


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
        ({"sampling": Sampling(logprobs=True)}, "logprobs"),
        ({"sampling": Sampling(logit_bias={5: 1.0})}, "logit_bias"),
        ({"tools": [Tool("weather")]}, "tools"),
        ({"response_format": JsonSchema({"type": "object"})}, "response_format"),
        ({"response_format": JsonSchema({"const": {1}})}, "response_format"),
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


def test_clients_show_certificates_where_that_is_asked(tmp_path: Path) -> None:
    signer, other = authority(), authority("another authority")
    files = signer.issue(tmp_path / "gateway", "gateway")
    own, foreign = signer.issue(tmp_path / "own", "app"), other.issue(tmp_path / "other", "app")
    certificate = ServerTls(files.certificate, files.private_key, files.authority)

    def asked(url: str, shown: MutualTls | None) -> int:
        context = ssl.create_default_context(cafile=str(files.authority))
        context.check_hostname = False
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.private_key)
        return httpx.get(f"{url}/readyz", verify=context, timeout=PATIENT_SECONDS).status_code

    with chat_gateway(Clients(Guard(None), certificate, certificate)) as gateway:
        known = Tls(files.authority, own.certificate, own.private_key, SERVER_NAME)
        with OmniClient(gateway.target, tls=known, retries=NO_RETRIES) as client:
            assert client.chat("hi", modalities=["text"]).text == "You said: hi"
        assert asked(gateway.url, own) == 200
        for stranger in (
            Tls(files.authority, server_name=SERVER_NAME),
            Tls(files.authority, foreign.certificate, foreign.private_key, SERVER_NAME),
        ):
            with (
                OmniClient(gateway.target, tls=stranger, retries=NO_RETRIES) as client,
                pytest.raises(Unavailable),
            ):
                client.chat("hi")
        for shown in (None, foreign):
            with pytest.raises(httpx.TransportError):
                asked(gateway.url, shown)


def test_a_message_that_means_nothing_never_leaves(parrot: ChatGateway) -> None:
    with OmniClient(parrot.target) as client:
        for messages in ([], [3], [{"role": 1}], [image("no/such/file.png")]):
            with pytest.raises(InvalidRequest):
                client.chat(messages)  # type: ignore[arg-type]  # wrong on purpose
