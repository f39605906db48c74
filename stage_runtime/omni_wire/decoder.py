"""Headers and payload views to messages. Nothing that arrives is trusted.

Decoding copies no tensor: they are views of the payload as it arrived, in one piece or in several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from google.protobuf.message import DecodeError

from omni_wire.errors import ErrorInfo, WireFormatError
from omni_wire.frame_layout import FrameDecoder, keys_in
from omni_wire.frame_stencil import Stencil
from omni_wire.identity import Bindings, Endpoint, RequestKey
from omni_wire.messages import (
    Abort,
    AbortAck,
    Completed,
    Drain,
    Draining,
    Failed,
    Message,
    Open,
    Payload,
    Ready,
    RequestView,
    Stats,
    StreamDone,
    StreamError,
    Submit,
)
from omni_wire.payload import PayloadReader
from omni_wire.trees import decode_map, decode_tree
from omni_wire.v1 import error_pb2, stage_pb2
from omni_wire.v1.session_pb2 import Header


def parse_header(raw: bytes) -> Header:
    """A serialized Header.

    Raises:
        WireFormatError: it is none.
    """
    try:
        return Header.FromString(raw)
    except DecodeError as error:
        raise WireFormatError("header is no protobuf message") from error


class Decoder:
    """Decodes the messages of one direction of one session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._frames = FrameDecoder()

    def decode(self, header: Header, pieces: Sequence[memoryview]) -> Message:
        """The message of a header whose payload lies in `pieces`.

        Raises:
            WireFormatError: an unknown kind, or contents that no encoder writes.
        """
        kind = header.WhichOneof("body") or "none"
        if kind == "frame":
            return self._frames.decode(header.frame, pieces)
        payload = PayloadReader(pieces)
        decode = _DECODERS.get(kind)
        if decode is None:
            raise WireFormatError(f"message of unknown kind {kind}")
        return decode(_Source(header, payload, self._clock))

    def stencil(self, header: Header) -> Stencil | None:
        """What to expect after the last message decoded, if that is a frame like the one before."""
        return self._frames.stencil(header) if header.HasField("frame") else None

    def keys(self, header: Header) -> tuple[RequestKey, ...]:
        """The requests that a header is about, without decoding its message.

        Raises:
            WireFormatError: it is about none.
        """
        kind = header.WhichOneof("body")
        if kind == "frame":
            return keys_in(header.frame.layout)
        if kind == "submit":
            return (_key(header.submit.payload.key),)
        if kind == "open":
            return (_key(header.open.key),)
        if kind == "payload":
            return (_key(header.payload.key),)
        if kind == "completed":
            return (_key(header.completed.key),)
        raise WireFormatError(f"{kind} with a payload")


@dataclass(frozen=True, slots=True)
class _Source:
    """What a message is decoded from."""

    header: Header
    payload: PayloadReader
    clock: Callable[[], float]

    def deadline(self, node: stage_pb2.Open | stage_pb2.Payload) -> float | None:
        if not node.HasField("timeout_micros"):
            return None
        return self.clock() + node.timeout_micros / 1e6


def _open(source: _Source) -> Open:
    node = source.header.open
    return Open(
        key=_key(node.key),
        source=node.source,
        bindings=_bindings(node.bindings),
        deadline=source.deadline(node),
        request=_request(node, source.payload),
    )


def _payload(source: _Source) -> Payload:
    return _payload_of(source.header.payload, source)


def _submit(source: _Source) -> Submit:
    node = source.header.submit
    return Submit(node.instance, _payload_of(node.payload, source))


def _payload_of(node: stage_pb2.Payload, source: _Source) -> Payload:
    return Payload(
        key=_key(node.key),
        source=node.source,
        data=decode_tree(node.data, source.payload),
        request=_request(node, source.payload),
        bindings=_bindings(node.bindings),
        deadline=source.deadline(node),
    )


def _request(
    node: stage_pb2.Open | stage_pb2.Payload, payload: PayloadReader
) -> RequestView | None:
    if not node.HasField("request"):
        return None
    return RequestView(
        inputs=decode_map(node.request.inputs, payload),
        params=decode_map(node.request.params, payload),
        metadata=decode_map(node.request.metadata, payload),
    )


def _done(source: _Source) -> StreamDone:
    node = source.header.done
    return StreamDone(_key(node.key), node.source, node.chunks)


def _stream_error(source: _Source) -> StreamError:
    node = source.header.error
    return StreamError(_key(node.key), node.source, decode_error(node.error))


def _abort(source: _Source) -> Abort:
    return Abort(_key(source.header.abort.key), source.header.abort.reason)


def _completed(source: _Source) -> Completed:
    node = source.header.completed
    return Completed(_key(node.key), node.source, decode_tree(node.result, source.payload))


def _failed(source: _Source) -> Failed:
    node = source.header.failed
    return Failed(_key(node.key), node.source, decode_error(node.error))


def _abort_ack(source: _Source) -> AbortAck:
    return AbortAck(_key(source.header.abort_ack.key))


def _ready(source: _Source) -> Ready:
    node = source.header.ready
    return Ready(node.instance, node.ready, node.reason)


def _stats(source: _Source) -> Stats:
    node = source.header.stats
    return Stats(
        instance=node.instance,
        queued=node.queued,
        in_flight=node.in_flight,
        heartbeat=node.heartbeat,
        heartbeat_age_seconds=node.heartbeat_age_seconds,
    )


def _draining(source: _Source) -> Draining:
    return Draining(tuple(source.header.draining.instances))


def _drain(source: _Source) -> Drain:
    return Drain(source.header.drain.seconds)


_DECODERS: Mapping[str, Callable[[_Source], Message]] = MappingProxyType(
    {
        "open": _open,
        "payload": _payload,
        "submit": _submit,
        "done": _done,
        "error": _stream_error,
        "abort": _abort,
        "completed": _completed,
        "failed": _failed,
        "abort_ack": _abort_ack,
        "ready": _ready,
        "stats": _stats,
        "draining": _draining,
        "drain": _drain,
    }
)


def _key(node: stage_pb2.RequestKey) -> RequestKey:
    if not node.request_id:
        raise WireFormatError("message without a request id")
    return RequestKey(node.gateway, node.request_id, node.epoch)


def decode_endpoint(node: stage_pb2.Endpoint) -> Endpoint:
    """The endpoint in a node.

    Raises:
        WireFormatError: no instance, or an incarnation that no process draws.
    """
    if not node.instance or not 0 < node.incarnation < 1 << 63:
        raise WireFormatError("endpoint without an instance or incarnation")
    return Endpoint(node.instance, node.address, node.incarnation)


def _bindings(nodes: Mapping[str, stage_pb2.Endpoint]) -> Bindings:
    return {stage: decode_endpoint(node) for stage, node in nodes.items()}


def decode_error(node: error_pb2.ErrorInfo) -> ErrorInfo:
    """The error in a node."""
    return ErrorInfo(
        reason=node.reason,
        message=node.message,
        retryable=node.retryable,
        stage=node.stage,
        details=dict(node.details),
        status=node.status,
    )
