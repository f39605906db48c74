"""Messages to headers and payload views.

A message is encoded when it is posted, so that whoever posts something the wire cannot carry learns
of it there; joining it into bytes waits until it is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import singledispatch

from google.protobuf.message import EncodeError

from omni_wire.encoded import Encoded
from omni_wire.errors import ErrorInfo, FrameTooLarge, WireFormatError
from omni_wire.frame_layout import FrameEncoder
from omni_wire.identity import Bindings, Endpoint, RequestKey
from omni_wire.messages import (
    FRAMES,
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
    keys_of,
)
from omni_wire.payload import PayloadWriter
from omni_wire.trees import encode_map, encode_tree
from omni_wire.v1 import error_pb2, stage_pb2
from omni_wire.v1.session_pb2 import Header


class Encoder:
    """Encodes the messages of one direction of one session."""

    def __init__(
        self,
        max_header_bytes: int,
        max_payload_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_header_bytes = max_header_bytes
        self._max_payload_bytes = max_payload_bytes
        self._clock = clock
        self._frames = FrameEncoder()

    def encode(self, message: Message) -> Encoded:
        """Encode any message.

        Raises:
            FrameTooLarge: header or payload exceed the wire's limits.
            WireFormatError: it holds something the wire does not carry.
        """
        payload = PayloadWriter(self._max_payload_bytes)
        try:
            if isinstance(message, FRAMES):
                raw = self._frames.encode(message, payload)
            else:
                raw = self._serialize(message, payload)
        except (ValueError, TypeError, EncodeError) as error:
            raise WireFormatError(f"{type(message).__name__}: {error}") from error
        if len(raw) > self._max_header_bytes:
            raise FrameTooLarge(
                f"{type(message).__name__} needs a header of {len(raw)} bytes, "
                f"the limit is {self._max_header_bytes}; send long lists as arrays"
            )
        return Encoded(raw, payload.views, payload.size, keys_of(message))

    def _serialize(self, message: Message, payload: PayloadWriter) -> bytes:
        header = Header()
        _encode(message, _Target(header, payload, self._clock))
        header.payload_bytes = payload.size
        return header.SerializeToString()


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a message is encoded to."""

    header: Header
    payload: PayloadWriter
    clock: Callable[[], float]

    def micros_left(self, deadline: float) -> int:
        return max(0, round((deadline - self.clock()) * 1e6))


@singledispatch
def _encode(message: Message, target: _Target) -> None:
    raise TypeError(f"{type(message).__name__} is no message")


@_encode.register
def _encode_open(message: Open, target: _Target) -> None:
    node = target.header.open
    _encode_key(message.key, node.key)
    node.source = message.source
    _encode_bindings(message.bindings, node.bindings)
    if message.deadline is not None:
        node.timeout_micros = target.micros_left(message.deadline)
    if message.request is not None:
        _encode_request(message.request, node.request, target.payload)


@_encode.register
def _encode_payload(message: Payload, target: _Target) -> None:
    _fill_payload(message, target.header.payload, target)


@_encode.register
def _encode_submit(message: Submit, target: _Target) -> None:
    target.header.submit.instance = message.instance
    _fill_payload(message.payload, target.header.submit.payload, target)


def _fill_payload(message: Payload, node: stage_pb2.Payload, target: _Target) -> None:
    _encode_key(message.key, node.key)
    node.source = message.source
    encode_tree(message.data, node.data, target.payload)
    _encode_bindings(message.bindings, node.bindings)
    if message.deadline is not None:
        node.timeout_micros = target.micros_left(message.deadline)
    if message.request is not None:
        _encode_request(message.request, node.request, target.payload)


@_encode.register
def _encode_done(message: StreamDone, target: _Target) -> None:
    node = target.header.done
    _encode_key(message.key, node.key)
    node.source = message.source
    node.chunks = message.chunks


@_encode.register
def _encode_stream_error(message: StreamError, target: _Target) -> None:
    node = target.header.error
    _encode_key(message.key, node.key)
    node.source = message.source
    encode_error(message.error, node.error)


@_encode.register
def _encode_abort(message: Abort, target: _Target) -> None:
    _encode_key(message.key, target.header.abort.key)
    target.header.abort.reason = message.reason


@_encode.register
def _encode_completed(message: Completed, target: _Target) -> None:
    node = target.header.completed
    _encode_key(message.key, node.key)
    node.source = message.source
    encode_tree(message.result, node.result, target.payload)


@_encode.register
def _encode_failed(message: Failed, target: _Target) -> None:
    node = target.header.failed
    _encode_key(message.key, node.key)
    node.source = message.source
    encode_error(message.error, node.error)


@_encode.register
def _encode_abort_ack(message: AbortAck, target: _Target) -> None:
    _encode_key(message.key, target.header.abort_ack.key)


@_encode.register
def _encode_ready(message: Ready, target: _Target) -> None:
    node = target.header.ready
    node.instance = message.instance
    node.ready = message.ready
    node.reason = message.reason


@_encode.register
def _encode_stats(message: Stats, target: _Target) -> None:
    node = target.header.stats
    node.instance = message.instance
    node.queued = message.queued
    node.in_flight = message.in_flight
    node.heartbeat = message.heartbeat
    node.heartbeat_age_seconds = message.heartbeat_age_seconds


@_encode.register
def _encode_draining(message: Draining, target: _Target) -> None:
    target.header.draining.SetInParent()
    target.header.draining.instances.extend(message.instances)


@_encode.register
def _encode_drain(message: Drain, target: _Target) -> None:
    target.header.drain.seconds = message.seconds


def _encode_key(key: RequestKey, node: stage_pb2.RequestKey) -> None:
    node.gateway = key.gateway
    node.request_id = key.request_id
    node.epoch = key.epoch


def encode_endpoint(endpoint: Endpoint, node: stage_pb2.Endpoint) -> None:
    """Write an endpoint into an empty node."""
    node.instance = endpoint.instance
    node.address = endpoint.address
    node.incarnation = endpoint.incarnation


def _encode_bindings(bindings: Bindings, nodes: MutableMapping[str, stage_pb2.Endpoint]) -> None:
    for stage, endpoint in bindings.items():
        encode_endpoint(endpoint, nodes[stage])


def _encode_request(
    request: RequestView, node: stage_pb2.RequestView, payload: PayloadWriter
) -> None:
    node.SetInParent()
    encode_map(request.inputs, node.inputs, payload, "inputs")
    encode_map(request.params, node.params, payload, "params")
    encode_map(request.metadata, node.metadata, payload, "metadata")


def encode_error(error: ErrorInfo, node: error_pb2.ErrorInfo) -> None:
    """Write an error into an empty node."""
    node.reason = error.reason
    node.message = error.message
    node.retryable = error.retryable
    node.stage = error.stage
    node.status = error.status
    node.details.update(error.details)
