"""What nobody well-meaning sends: every answer is a typed refusal, and the gateway goes on."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from omni_gateway.clients import Clients
from omni_gateway.http_api.limits import HttpLimits
from tests.support.chat_gateway import MODEL, ChatGateway, chat_gateway
from tests.support.patience import PATIENT_SECONDS

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
BODY = b" " * 1_000_000
REFUSED = (b"429", b"")
LIMITS = HttpLimits(
    body_bytes=1 << 20,
    body_seconds=PATIENT_SECONDS,
    idle_seconds=PATIENT_SECONDS,
    held_bytes=3 << 20,
)
HASTY = replace(LIMITS, body_seconds=1.0, idle_seconds=0.5)
"""For those who do nothing: what they are given, a busy machine takes to send anything."""


@pytest.fixture(scope="module")
def strict() -> Iterator[ChatGateway]:
    """A gateway with small limits."""
    with chat_gateway(Clients(limits=LIMITS)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def hasty() -> Iterator[ChatGateway]:
    """One that waits for nobody."""
    with chat_gateway(Clients(limits=HASTY)) as gateway:
        yield gateway


def chat(**change: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **change}


def with_image(url: str) -> dict[str, object]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return chat(messages=[{"role": "user", "content": [part]}])


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "null": b"null",
    "deep lists": b'{"messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a huge number": b'{"model":"parrot","messages":[],"seed":' + b"9" * 5000 + b"}",
    "not a number": b'{"model":"parrot","messages":[],"temperature":NaN}',
    "infinity": b'{"model":"parrot","messages":[],"temperature":1e999}',
    "half a character": b'{"model":"\\ud800","messages":[]}',
    "no UTF-8": b'{"model":"\xff\xfe","messages":[]}',
    "a null character": json.dumps(chat(model="\0")).encode(),
    "many unknown fields": json.dumps({f"field{n}": n for n in range(10_000)}).encode(),
    "a long unknown field": json.dumps({"x" * 100_000: 1}).encode(),
    "many messages": json.dumps(chat(messages=[{"role": "user", "content": ""}] * 5000)).encode(),
    "text for a number": json.dumps(chat(temperature="0.5")).encode(),
    "a number for text": json.dumps(chat(model=1)).encode(),
    "a wrong role": json.dumps(chat(messages=[{"role": "root", "content": "hi"}])).encode(),
    "sound that is no base64": json.dumps(
        chat(
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_audio", "input_audio": {"data": "!!", "format": "wav"}}
                    ],
                }
            ]
        )
    ).encode(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_means_nothing_is_refused(strict: ChatGateway, body: bytes) -> None:
    answer = httpx.post(
        strict.url + CHAT,
        content=body,
        headers=JSON,
        timeout=PATIENT_SECONDS,
    )
    assert answer.status_code in (400, 404), answer.text
    assert_typed(answer)
    # Nothing of a hostile body comes back at length.
    assert len(answer.content) < 4096


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "http://user:secret@10.0.0.1/",
        "http://10.0.0.1:22/",
        "file:///etc/passwd",
        "/etc/passwd",
        "gopher://127.0.0.1/",
        "data:image/png;base64,%%%",
    ],
)
def test_no_address_inside_the_network_is_fetched(strict: ChatGateway, url: str) -> None:
    answer = httpx.post(strict.url + CHAT, json=with_image(url), timeout=PATIENT_SECONDS)
    assert answer.status_code in (400, 403), answer.text
    assert_typed(answer)
    assert "root:" not in answer.text


def test_who_reads_nothing_before_all_is_written_hears_of_a_body_over_the_limit(
    strict: ChatGateway,
) -> None:
    large = with_image("data:," + "x" * (16 << 20))
    answer = httpx.post(strict.url + CHAT, json=large, timeout=PATIENT_SECONDS)
    assert answer.status_code == 413
    assert_typed(answer)


def test_who_asks_before_writing_a_body_over_the_limit_need_not_write_it(
    strict: ChatGateway,
) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    head += f"content-length: {16 << 20}\r\nexpect: 100-continue\r\n\r\n"
    parts = urlsplit(strict.url)
    assert parts.hostname is not None
    with socket.create_connection((parts.hostname, parts.port or 80)) as connection:
        connection.sendall(head.encode())
        connection.settimeout(PATIENT_SECONDS)
        with connection.makefile("rb") as answer:
            assert answer.readline().split()[1] == b"413"


def test_a_body_without_an_end_is_refused_while_it_comes(hasty: ChatGateway) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 65536

    with pytest.raises(httpx.HTTPError):
        # The answer comes while the client still writes; most clients see a broken pipe.
        httpx.post(
            hasty.url + CHAT, content=endless(), headers=JSON, timeout=PATIENT_SECONDS
        ).raise_for_status()


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_of_another_page_is_not_taken_for_a_request(
    strict: ChatGateway, media_type: str
) -> None:
    content = json.dumps(chat()).encode()
    answer = httpx.post(
        strict.url + CHAT,
        content=content,
        headers={"content-type": media_type},
        timeout=PATIENT_SECONDS,
    )
    assert answer.status_code == 415
    assert_typed(answer)


def test_other_paths_and_methods_are_refused_in_the_same_words(strict: ChatGateway) -> None:
    for method, path, status in (
        ("GET", CHAT, 405),
        ("POST", "/v1/nothing", 404),
        ("PUT", "/v1/models", 405),
        ("GET", "/v1/models/..%2f..%2fetc", 404),
        ("GET", "/v1/pipeline?config=perhaps", 400),
    ):
        answer = httpx.request(method, strict.url + path, timeout=PATIENT_SECONDS)
        assert answer.status_code == status, (path, answer.text)
        assert_typed(answer)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nhost: x\r\n" + b"a: " + b"b" * 200_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n" * 100_000,
    ],
    ids=["large", "two lengths", "coding", "TLS", "empty lines"],
)
async def test_a_hostile_head_ends_its_connection_alone(hasty: ChatGateway, head: bytes) -> None:
    answer = await exchange(hasty, head)
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501"))
    alive = await exchange(hasty, b"GET /livez HTTP/1.0\r\n\r\n")
    assert alive.startswith(b"HTTP/1.1 200")


async def test_drops_of_a_head_do_not_hold_a_connection(hasty: ChatGateway) -> None:
    reader, writer = await connected(hasty)
    writer.write(b"GET /livez HTTP/1.1\r\n")
    async with asyncio.timeout(PATIENT_SECONDS):
        assert await reader.read() == b""
    writer.close()


async def test_a_slow_body_is_given_up(hasty: ChatGateway) -> None:
    reader, writer = await connected(hasty)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: 100\r\n\r\n".encode() + b"{")
    async with asyncio.timeout(PATIENT_SECONDS):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()


async def test_bodies_together_are_bounded(strict: ChatGateway) -> None:
    bodies = [asyncio.create_task(status_of(strict, BODY[:-1])) for _ in range(5)]
    ended = asyncio.as_completed(bodies)
    # Only three fit, and nobody is too slow.
    for _ in range(2):
        assert await next(ended) in REFUSED
    for body in bodies:
        body.cancel()
    await asyncio.wait(bodies)

    while await status_of(strict, BODY) in REFUSED:
        pass  # the gateway has yet to notice who left
    for _ in range(4):
        assert await status_of(strict, BODY) == b"400"


async def status_of(gateway: ChatGateway, sent: bytes) -> bytes:
    """Send a body, or the beginning of it; returns the status of the answer, or nothing when the
    end of the connection overtook that."""
    reader, writer = await connected(gateway)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    try:
        writer.write(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + sent)
        await writer.drain()
        return (await reader.readline())[9:12]
    except ConnectionError:
        return b""
    finally:
        writer.close()


def assert_typed(answer: httpx.Response) -> None:
    error: dict[str, Any] = answer.json()["error"]
    assert error["message"]
    assert error["type"]
    assert error["code"]
    assert answer.headers["x-request-id"]


async def connected(gateway: ChatGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    where = urlsplit(gateway.url)
    return await asyncio.open_connection(where.hostname, where.port)


async def exchange(gateway: ChatGateway, data: bytes) -> bytes:
    reader, writer = await connected(gateway)
    try:
        async with asyncio.timeout(PATIENT_SECONDS):
            writer.write(data)
            return await reader.read(65536)
    except ConnectionError:
        return b""
    finally:
        writer.close()
