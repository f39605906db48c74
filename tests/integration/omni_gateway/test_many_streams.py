"""Many readers at once: some leave, one stalls, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.chat_gateway import MODEL, ChatGateway, chat_gateway

pytestmark = pytest.mark.slow

STREAMS = 40
LEAVING = 8
WORDS = 40
LONG = 50_000
MEMORY_BYTES = 64 << 20
"""How much the whole test may add to the gateway's process, whatever its streams hold."""


@pytest.fixture(scope="module")
def busy() -> Iterator[ChatGateway]:
    with chat_gateway() as gateway:
        yield gateway


async def test_leaving_and_stalled_readers_disturb_nobody(busy: ChatGateway) -> None:
    stalled = await _stalled(busy)
    before = _resident_bytes()
    limits = httpx.Limits(max_connections=STREAMS)
    async with (
        httpx.AsyncClient(base_url=busy.url, limits=limits, timeout=100) as client,
        asyncio.TaskGroup() as tasks,
    ):
        staying = [tasks.create_task(_read(client)) for _ in range(STREAMS - LEAVING)]
        for _ in range(LEAVING):
            tasks.create_task(_leave(client))
    texts = [task.result() for task in staying]
    assert texts == [" ".join(map(str, range(1, WORDS + 1)))] * len(staying)
    assert _resident_bytes() - before < MEMORY_BYTES

    stalled.close()
    assert await asyncio.to_thread(busy.settled)
    page = (await asyncio.to_thread(httpx.get, f"{busy.url}/metrics")).text
    assert _count(page, "omni_gateway_chat_answers_total", "stop") == STREAMS - LEAVING
    assert _count(page, "omni_gateway_chat_answers_total", "REQUEST_ABORTED") == LEAVING + 1
    assert "omni_gateway_requests_in_flight 0.0" in page
    assert "omni_gateway_output_backlog_bytes 0.0" in page


def _body(count: int) -> dict[str, object]:
    messages = [{"role": "user", "content": f"count {count}"}]
    return {"model": MODEL, "messages": messages, "stream": True, "max_tokens": LONG}


async def _read(client: httpx.AsyncClient) -> str:
    text = ""
    async with client.stream("POST", "/v1/chat/completions", json=_body(WORDS)) as response:
        async for line in response.aiter_lines():
            data = line.removeprefix("data: ")
            if data and data != "[DONE]":
                for choice in json.loads(data)["choices"]:
                    text += choice["delta"].get("content", "")
    return text


async def _leave(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/v1/chat/completions", json=_body(LONG)) as response:
        async for _ in response.aiter_lines():
            return


async def _stalled(gateway: ChatGateway) -> asyncio.StreamWriter:
    """Ask for a very long answer, see its beginning, and read no further."""
    where = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1024)
    content = json.dumps(_body(LONG)).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    return writer


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _count(page: str, name: str, reason: str) -> int:
    found: Counter[str] = Counter()
    for line in page.splitlines():
        if line.startswith(f"{name}{{") and f'reason="{reason}"' in line:
            found[reason] += int(float(line.split()[-1]))
    return found[reason]
