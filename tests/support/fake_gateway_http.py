"""A stand-in for the gateway's HTTP side, with the page on it, for looks that a test arranges.

It answers at once with the user's own words and a tone of each. `(busy)` is refused, `(fail)` fails
in the middle, and `(endless)` never ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from omni_gateway.http_api.app import PAGE
from omni_gateway.http_api.page_files import PageFiles

RATE = 24_000
WORD_SAMPLES = 4_800

_EDGES: dict[str, tuple[list[str], list[str]]] = {
    "preprocessing": (["image_encoder", "audio_encoder", "mm_aggregate"], []),
    "image_encoder": (["mm_aggregate"], []),
    "audio_encoder": (["mm_aggregate"], []),
    "mm_aggregate": (["thinker"], []),
    "thinker": (["decode", "talker_ar"], ["decode", "talker_ar"]),
    "decode": ([], []),
    "talker_ar": (["code2wav"], ["code2wav"]),
    "code2wav": ([], []),
}
_SPANS = (
    ("preprocessing", 0.0, None, 0.012),
    ("image_encoder", 0.013, None, 0.071),
    ("audio_encoder", 0.013, None, 0.028),
    ("mm_aggregate", 0.013, None, 0.074),
    ("thinker", 0.075, 0.132, 1.41),
    ("decode", 0.133, 0.134, 1.412),
    ("talker_ar", 0.134, 0.208, 1.93),
    ("code2wav", 0.209, 0.241, 1.98),
)


@dataclass
class FakeGateway:
    """What a test sets and sees.

    Attributes:
        key: the API key to ask for; empty for none.
        requests: bodies of the chat requests so far.
        left: set when a client has left before its answer was complete.
        unready: stages without a ready instance.
    """

    address: str = ""
    key: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    unready: set[str] = field(default_factory=set)

    def app(self) -> FastAPI:
        """Return the HTTP side."""
        app = FastAPI()
        app.add_api_route("/v1/pipeline", self._pipeline)
        app.add_api_route("/v1/requests/{request_id}", self._timeline)
        app.add_api_route("/v1/chat/completions", self._chat, methods=["POST"])
        app.mount("/", PageFiles(directory=PAGE, html=True))
        return app

    async def _pipeline(self, request: Request) -> Response:
        stages = [self._stage(name) for name in _EDGES]
        return JSONResponse({"name": "Qwen3-Omni", "ready": not self.unready, "stages": stages})

    def _stage(self, name: str) -> dict[str, Any]:
        following, streams = _EDGES[name]
        ready = name not in self.unready
        reason = "" if ready else "loading weights"
        instance = {"name": name, "ready": ready, "reason": reason, "in_flight": 0}
        modality = {"decode": "text", "code2wav": "audio"}.get(name, "")
        edges = {"next": following, "stream_to": streams}
        return {"name": name, "group": name, "modality": modality, **edges, "instances": [instance]}

    async def _timeline(self, request_id: str) -> Response:
        if request_id != "request-1":
            return _refusal(404, "no such request", "request_not_found")
        names = ("stage", "opened", "first_output", "finished")
        stages = [{**dict(zip(names, span, strict=True)), "instance": span[0]} for span in _SPANS]
        body = {"request_id": request_id, "status": "completed", "seconds": 1.99, "stages": stages}
        return JSONResponse(body)

    async def _chat(self, request: Request) -> Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return _refusal(401, "the API key is missing or unknown", "invalid_api_key")
        body = await request.json()
        self.requests.append(body)
        text = question_of(body)
        if text == "(busy)":
            headers = {"retry-after": "1"}
            return _refusal(429, "32 requests are in flight", "QUEUE_FULL", headers)
        speaks = "audio" in body["modalities"]
        answer = self._answer(text, speaks)
        return StreamingResponse(
            answer, headers={"x-request-id": "request-1"}, media_type="text/event-stream"
        )

    async def _answer(self, text: str, speaks: bool) -> AsyncIterator[str]:
        try:
            for place, word in enumerate(answer_to(text).split(" ")):
                yield _event(_chunk({"content": f"{word} "}))
                if speaks:
                    sound = base64.b64encode(tone(place)).decode()
                    audio = {"id": "speech", "data": sound, "transcript": ""}
                    yield _event(_chunk({"audio": audio}))
            if text == "(fail)":
                yield _event({"error": {"message": "thinker failed", "code": "STAGE_FAILED"}})
                return
            if text == "(endless)":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        yield _event({**_chunk({}), "choices": [{"delta": {}, "finish_reason": "stop"}]})
        yield _event({"id": "chatcmpl-1", "choices": [], "usage": {"completion_tokens": 4}})
        yield "data: [DONE]\n\n"


def question_of(body: dict[str, Any]) -> str:
    """Return the text of the last message."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def answer_to(text: str) -> str:
    """Return what the gateway answers to a text."""
    return f"You said: {text}"


def tone(place: int) -> bytes:
    """Return the sound of one word as pcm16."""
    return _tone(190 + 35 * (place % 5))


@cache
def _tone(pitch: int) -> bytes:
    angles = (2 * math.pi * pitch * i / RATE for i in range(WORD_SAMPLES))
    fades = (math.sin(math.pi * i / WORD_SAMPLES) for i in range(WORD_SAMPLES))
    values = [int(12_000 * math.sin(a) * f) for a, f in zip(angles, fades, strict=True)]
    return struct.pack(f"<{WORD_SAMPLES}h", *values)


@contextmanager
def fake_gateway() -> Iterator[FakeGateway]:
    """Serve a fake gateway on a free local port, from a thread."""
    gateway = FakeGateway()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gateway.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(gateway.app(), log_level="error", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield gateway
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


def _chunk(delta: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _refusal(
    status: int, message: str, code: str, headers: dict[str, str] | None = None
) -> Response:
    error = {"message": message, "type": "refused", "param": None, "code": code}
    return JSONResponse({"error": error}, status, headers)
