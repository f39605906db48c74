"""Many readers at once: some leave, one stalls, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.chat_gateway import MODEL, ChatGateway, chat_gateway
from tests.support.event_streams import EventReader
from tests.support.patience import PATIENT_SECONDS

pytestmark = pytest.mark.slow

STREAMS = 200
LEAVING = 40
WORDS = 40
LONG = 12_000
"""Words that no buffer holds on the way to a reader who does not read."""
UNREAD = 2_000
MEMORY_BYTES = 64 << 20
"""How much the whole test may add to the gateway's process, whatever its streams hold."""


@pytest.fixture(scope="module")
def busy() -> Iterator[ChatGateway]:
    with chat_gateway() as gateway:
        yield gateway


async def test_leaving_and_stalled_readers_disturb_nobody(busy: ChatGateway) -> None:
    stalled = await EventReader.asked(busy.url, _body(LONG), buffer_bytes=4096)
    await stalled.begun()
    before = _resident_bytes()

    async with asyncio.TaskGroup() as tasks:
        staying = [tasks.create_task(_read(busy.url)) for _ in range(STREAMS - LEAVING)]
        for _ in range(LEAVING):
            tasks.create_task(_leave(busy.url))

    texts = [task.result() for task in staying]
    assert texts == [" ".join(map(str, range(1, WORDS + 1)))] * len(staying)
    assert _resident_bytes() - before < MEMORY_BYTES

    stalled.leave()
    assert await asyncio.to_thread(busy.settled)
    page = (await asyncio.to_thread(httpx.get, f"{busy.url}/metrics", timeout=PATIENT_SECONDS)).text
    assert _count(page, "omni_gateway_chat_answers_total", "stop") == STREAMS - LEAVING
    assert _count(page, "omni_gateway_chat_answers_total", "REQUEST_ABORTED") == LEAVING + 1
    assert "omni_gateway_requests_in_flight 0.0" in page
    assert "omni_gateway_output_backlog_bytes 0.0" in page


def _body(count: int) -> dict[str, object]:
    messages = [{"role": "user", "content": f"count {count}"}]
    return {"model": MODEL, "messages": messages, "max_tokens": LONG}


async def _read(url: str) -> str:
    stream = await EventReader.asked(url, _body(WORDS))
    return await (await stream.begun()).text()


async def _leave(url: str) -> None:
    stream = await EventReader.asked(url, _body(UNREAD))
    await stream.begun()
    await stream.event()
    stream.leave()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _count(page: str, name: str, reason: str) -> int:
    found: Counter[str] = Counter()
    for line in page.splitlines():
        if line.startswith(f"{name}{{") and f'reason="{reason}"' in line:
            found[reason] += int(float(line.split()[-1]))
    return found[reason]
