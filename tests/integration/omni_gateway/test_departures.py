"""Clients that are gone at any moment, and clients that do nothing but stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from omni_gateway.clients import Clients
from omni_gateway.http_api.limits import HttpLimits
from tests.support.chat_gateway import MODEL, ChatGateway, chat_gateway
from tests.support.patience import PATIENT_SECONDS

pytestmark = pytest.mark.slow

CONNECTIONS = 1000
READ_BYTES = (0, 1, 17, 300, 2000, 20_000)
"""After how much of an answer its reader leaves."""
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "count 300"}]}
SPEECH = {"model": MODEL, "input": "one two three", "voice": "ethan"}
ASKED = {
    "stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "whole": ("/v1/chat/completions", {**CHAT, "modalities": ["text", "audio"]}),
    "speech": ("/v1/audio/speech", SPEECH),
    "events": ("/v1/audio/speech", {**SPEECH, "stream_format": "sse"}),
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[ChatGateway]:
    with chat_gateway(Clients(limits=HttpLimits(idle_seconds=1.0))) as gateway:
        yield gateway


@pytest.mark.parametrize(("path", "body"), ASKED.values(), ids=ASKED)
async def test_who_leaves_at_any_moment_leaves_nothing(
    gateway: ChatGateway, path: str, body: dict[str, object]
) -> None:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
    ends = (1, len(head) // 2, len(request) - len(content), len(request) - 1)

    await asyncio.gather(
        *(_leave(gateway, request[:end], 0) for end in ends),
        *(_leave(gateway, request, read) for read in READ_BYTES),
    )

    assert await asyncio.to_thread(gateway.settled)
    await _becomes(gateway, "omni_gateway_http_requests_in_flight 1.0")
    assert "omni_gateway_output_backlog_bytes 0.0" in await _metrics(gateway)


async def test_a_thousand_connections_that_say_nothing_are_closed_and_harm_nobody(
    gateway: ChatGateway,
) -> None:
    opened = await asyncio.gather(*(_connected(gateway) for _ in range(CONNECTIONS)))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=PATIENT_SECONDS) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200

    async with asyncio.timeout(PATIENT_SECONDS):
        said = await asyncio.gather(*(reader.read() for reader, _ in opened))
    assert set(said) == {b""}
    for _, writer in opened:
        writer.close()


async def _leave(gateway: ChatGateway, sent: bytes, read: int) -> None:
    """Send some bytes, read some, and be gone without a word."""
    reader, writer = await _connected(gateway)
    writer.write(sent)
    await writer.drain()
    try:
        async with asyncio.timeout(PATIENT_SECONDS):
            await reader.readexactly(read)
    except asyncio.IncompleteReadError:
        pass  # the answer was shorter
    writer.transport.abort()


async def _becomes(gateway: ChatGateway, line: str) -> None:
    """Wait until a line stands in the metrics; asking for them is a request as well."""
    async with asyncio.timeout(PATIENT_SECONDS):
        while line not in await _metrics(gateway):
            pass


async def _metrics(gateway: ChatGateway) -> str:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=PATIENT_SECONDS) as client:
        return (await client.get("/metrics")).text


async def _connected(gateway: ChatGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    where = urlsplit(gateway.url)
    return await asyncio.open_connection(where.hostname, where.port)
