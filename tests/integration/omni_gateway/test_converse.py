"""One stream that carries files and several requests, each of which ends for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import grpc
import pytest

from omni_gateway.conversation import MAX_REQUESTS
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.support.chat_gateway import ChatGateway
from tests.support.patience import PATIENT_SECONDS

pytestmark = pytest.mark.slow

ENDLESS = "count 100000"

Call: TypeAlias = "grpc.aio.StreamStreamCall[pb.ConverseRequest, pb.ConverseEvent]"


class Talk:
    """A Converse stream, and what was said of each request."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.texts: dict[str, str] = {}
        self.uploads: list[pb.UploadReceived] = []

    async def ask(self, name: str, text: str, upload: str = "") -> None:
        """Begin a request for text."""
        content = [pb.ContentPart(text=text)]
        if upload:
            content.append(pb.ContentPart(image=pb.Media(upload_id=upload)))
        request = pb.GenerateRequest(
            request_id=name,
            modalities=["text"],
            messages=[pb.Message(role="user", content=content)],
            sampling=pb.SamplingParams(max_tokens=200_000),
        )
        await self.call.write(pb.ConverseRequest(generate=request))

    async def upload(self, name: str, *parts: bytes) -> None:
        """Send a file in parts."""
        for number, data in enumerate(parts, start=1):
            part = pb.UploadPart(upload_id=name, data=data, last=number == len(parts))
            await self.call.write(pb.ConverseRequest(upload=part))

    async def cancel(self, name: str) -> None:
        """End a request."""
        cancel = pb.CancelRequest(request_id=name)
        await self.call.write(pb.ConverseRequest(cancel=cancel))

    async def ended(self, *names: str) -> dict[str, str]:
        """Read until these requests have ended; returns the reason of each."""
        reasons: dict[str, str] = {}
        async with asyncio.timeout(PATIENT_SECONDS):
            while not reasons.keys() >= set(names):
                event = await self.call.read()
                assert isinstance(event, pb.ConverseEvent)
                self._note(event, reasons)
        return reasons

    async def begun(self, name: str) -> None:
        """Read until a request has said something."""
        async with asyncio.timeout(PATIENT_SECONDS):
            while not self.texts.get(name):
                event = await self.call.read()
                assert isinstance(event, pb.ConverseEvent)
                self._note(event, {})

    def _note(self, event: pb.ConverseEvent, reasons: dict[str, str]) -> None:
        told, name = event.generate, event.generate.request_id
        if event.HasField("failed"):
            reasons[event.failed.request_id] = event.failed.error.reason
        elif event.HasField("upload"):
            self.uploads.append(event.upload)
        elif told.HasField("text"):
            self.texts[name] = self.texts.get(name, "") + told.text.text
        elif told.HasField("finished"):
            reasons[name] = told.finished.reason


@asynccontextmanager
async def talking(gateway: ChatGateway) -> AsyncIterator[Talk]:
    async with grpc.aio.insecure_channel(gateway.target) as channel:
        yield Talk(pb_grpc.GatewayServiceStub(channel).Converse())


async def test_several_requests_are_answered_side_by_side(parrot: ChatGateway) -> None:
    async with talking(parrot) as talk:
        await talk.ask("first", "count 40")
        await talk.ask("second", "hello")
        assert await talk.ended("first", "second") == {"first": "stop", "second": "stop"}
        assert talk.texts["second"] == "You said: hello"
        assert talk.texts["first"].split() == [str(number) for number in range(1, 41)]
        await talk.call.done_writing()
        assert await talk.call.read() is grpc.aio.EOF


async def test_a_file_is_uploaded_once_and_shown_to_several_requests(parrot: ChatGateway) -> None:
    async with talking(parrot) as talk:
        await talk.upload("cat", b"pn", b"g")
        await talk.ask("one", "see", upload="cat")
        await talk.ask("two", "look", upload="cat")
        await talk.ask("lost", "look", upload="dog")
        assert await talk.ended("one", "two", "lost") == {
            "one": "stop",
            "two": "stop",
            "lost": "INVALID_REQUEST",
        }
    assert [one.bytes for one in talk.uploads] == [2, 3]
    assert len(talk.uploads[-1].sha256) == 64
    assert talk.texts == {
        "one": "You said: see (with 1 image)",
        "two": "You said: look (with 1 image)",
    }


async def test_one_request_is_cancelled_and_the_others_go_on(parrot: ChatGateway) -> None:
    async with talking(parrot) as talk:
        await talk.ask("endless", ENDLESS)
        await talk.begun("endless")
        await talk.cancel("endless")
        await talk.cancel("nobody")
        await talk.ask("next", "hello")
        assert await talk.ended("endless", "next") == {
            "endless": "REQUEST_ABORTED",
            "next": "stop",
        }
    assert await asyncio.to_thread(parrot.settled)


async def test_what_fails_is_an_event_and_the_stream_goes_on(parrot: ChatGateway) -> None:
    async with talking(parrot) as talk:
        await talk.ask("failing", "(fail)")
        await talk.ask("", "nameless")
        await talk.ask("twice", ENDLESS)
        await talk.ask("twice", "again")
        reasons = await talk.ended("failing", "", "twice")
        assert reasons == {
            "failing": "STAGE_FAILED",
            "": "INVALID_REQUEST",
            "twice": "REQUEST_EXISTS",
        }
        await talk.ask("after", "hello")
        await talk.ended("after")


async def test_a_stream_carries_only_so_many_requests_and_leaves_none_behind(
    parrot: ChatGateway,
) -> None:
    async with talking(parrot) as talk:
        for number in range(MAX_REQUESTS + 1):
            await talk.ask(f"r{number}", ENDLESS)
        reasons = await talk.ended(f"r{MAX_REQUESTS}")
        assert reasons[f"r{MAX_REQUESTS}"] == "INVALID_REQUEST"
    assert await asyncio.to_thread(parrot.settled)
    assert not [name for name in await asyncio.to_thread(_tasks, parrot) if "Conversation" in name]


def _tasks(gateway: ChatGateway) -> list[str]:
    async def named() -> list[str]:
        return [repr(task.get_coro()) for task in asyncio.all_tasks()]

    return gateway.call(named())
