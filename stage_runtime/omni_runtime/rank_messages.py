"""One pass of a scheduler as bytes: what rank 0 took from its inbox, for the other ranks.

Messages travel as on any edge, by the wire's own encoding; what the wire has no word for (which
rows of a frame count, stalls) stands in a short list beside them. Never pickle: a rank is another
process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from omni_runtime.scheduler import (
    AbortRequest,
    Chunks,
    Drain,
    InboxMessage,
    NewRequest,
    Opened,
    Resume,
    Stall,
)
from omni_wire.decoder import Decoder, parse_header
from omni_wire.encoder import Encoder
from omni_wire.errors import WireFormatError
from omni_wire.identity import RequestKey
from omni_wire.messages import Abort, Open, Payload, RequestView, StepFrame, StreamDone

MAX_HEADER_BYTES = 64 << 20
MAX_PAYLOAD_BYTES = 4 << 30
"""Ranks share a host and a fate, so these only catch nonsense."""

Words = list[Any]
Wire = Payload | Open | StepFrame | StreamDone | Abort | None


class PassEncoder:
    """Encodes passes on rank 0."""

    def __init__(self) -> None:
        self._encoder = Encoder(MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES)

    def encode(self, messages: Sequence[InboxMessage]) -> list[bytes]:
        """Return a pass as the parts of one ZeroMQ message: a list of words, then headers and
        payloads.

        Raises:
            ServiceError: a message holds something the wire does not carry.
        """
        listed: list[Words] = []
        parts: list[bytes] = []
        for message in messages:
            words, wire = _split(message)
            listed.append(words)
            if wire is not None:
                encoded = self._encoder.encode(wire)
                parts += [encoded.header, b"".join(encoded.pieces)]
        return [json.dumps(listed).encode(), *parts]


class PassDecoder:
    """Decodes passes on the other ranks."""

    def __init__(self) -> None:
        self._decoder = Decoder()

    def decode(self, parts: Sequence[bytes]) -> list[InboxMessage]:
        """Return the messages of a pass.

        Raises:
            WireFormatError: no rank 0 of this version sends such bytes.
        """
        rest = iter(parts[1:])
        return [self._joined(words, rest) for words in json.loads(parts[0])]

    def _joined(self, words: Words, rest: Iterator[bytes]) -> InboxMessage:
        match words:
            case ["drain"]:
                return Drain()
            case ["stall", *key]:
                return Stall(RequestKey(*key))
            case ["resume", *key]:
                return Resume(RequestKey(*key))
        header, payload = next(rest), next(rest)
        wire = self._decoder.decode(parse_header(header), [memoryview(payload)] if payload else [])
        match words, wire:
            case ["new"], Payload():
                return NewRequest(wire)
            case ["opened"], Open():
                assert wire.request is not None
                return Opened(wire.key, wire.request)
            case ["opened"], Open(request=RequestView() as request):
                return Opened(wire.key, request)
            case ["chunks", source, indices], StepFrame():
                return Chunks(source, wire, tuple(indices))
            case ["done"], StreamDone():
                return wire
            case ["abort"], Abort():
                return AbortRequest(wire.key, wire.reason)
        raise WireFormatError(f"rank 0 sent {words} with {type(wire).__name__}")


def _split(message: InboxMessage) -> tuple[Words, Wire]:
    match message:
        case NewRequest(payload):
            return ["new"], payload
        case Opened(key, request):
            return ["opened"], Open(key, "", {}, request=request)
        case Opened(key, request):
            return ["opened"], Open(key, "", {}, request=request)
        case Chunks(source, frame, indices):
            return ["chunks", source, list(indices)], frame
        case StreamDone():
            return ["done"], message
        case AbortRequest(key, reason):
            return ["abort"], Abort(key, reason)
        case Stall(key):
            return ["stall", *key], None
        case Resume(key):
            return ["resume", *key], None
        case Drain():
            return ["drain"], None
