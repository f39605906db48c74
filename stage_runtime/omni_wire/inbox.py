"""The receiving half of a session: envelopes in, messages out, each once and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from omni_wire import rows
from omni_wire.accounts import MESSAGE_BYTES, message_cost
from omni_wire.assembly import Assembly
from omni_wire.decoder import Decoder
from omni_wire.edge import Deliver, EdgeOptions
from omni_wire.envelope import SEQUENCE_BYTES
from omni_wire.errors import WireFormatError
from omni_wire.frame_stencil import Stencil
from omni_wire.identity import RequestKey
from omni_wire.messages import FRAMES, Abort, Message, keys_of
from omni_wire.outbox import FREE_KINDS
from omni_wire.receiver_state import Owed, ReceiverState, Resume
from omni_wire.shared_arena import SharedSegment
from omni_wire.v1.session_pb2 import Header


class Inbox:
    """What the other side has sent.

    `owes` is called whenever there is something to acknowledge, with True when it is urgent.
    """

    def __init__(
        self, options: EdgeOptions, deliver: Deliver, owes: Callable[[bool], None]
    ) -> None:
        self._options = options
        self._deliver = deliver
        self._owes = owes
        self._decoder = Decoder()
        slack = options.envelope_bytes + MESSAGE_BYTES
        self._state = ReceiverState(options.credits, slack)
        self._assembly: Assembly | None = None
        self._stencil: Stencil | None = None
        # Whether `owes` was called since the last acknowledgement.
        self._told = False
        # Released bytes at which an acknowledgement is urgent: before the sender has to count
        # what each request holds, and long before it runs dry.
        self._urgent_bytes = options.credits.relaxed * 4 // 5
        self.segment: SharedSegment | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes delivered, or being put together, and not released."""
        return self._state.held_bytes

    def share(self, segment: SharedSegment) -> None:
        """Payloads may lie in this memory from now on."""
        self.segment = segment
        segment.watch(lambda: self._owes(False))

    def repeat(self, data: bytes) -> bool:
        """Take a numbered envelope if it repeats the last frame; False for any other.

        Raises:
            WireFormatError, EnvelopeMissing: as `receive`.
        """
        stencil = self._stencil
        if stencil is None:
            return False
        read = stencil.read(data)
        if read is None:
            return False
        sequence, message = read
        if self._state.accept(sequence):
            stale = self._state.admit(sequence, stencil.keys, stencil.cost)
            if stale:
                self._hand_over(sequence, message, stencil.keys, stale)
            else:
                self._deliver(message, partial(self.release, sequence))
            if not self._told:
                self._tell()
        return True

    def receive(self, header: Header, header_bytes: int, payload: memoryview) -> None:
        """Take one numbered envelope.

        Raises:
            WireFormatError: no correct peer sends it; the session cannot go on.
            EnvelopeMissing: one before it has not come.
        """
        sequence = header.sequence
        if not sequence:
            raise WireFormatError(f"{header.WhichOneof('body')} in the midst of a stream")
        if not self._state.accept(sequence):
            return
        kind = header.WhichOneof("body") or ""
        if kind == "part":
            self._receive_part(header, payload)
        elif header.HasField("shared"):
            self._receive_shared(header, header_bytes, payload)
        elif header.payload_bytes != len(payload):
            self._begin(header, header_bytes, payload)
        elif kind in FREE_KINDS:
            self._receive_free(self._decoder.decode(header, (payload,)))
        else:
            message = self._decoder.decode(header, (payload,))
            self._stencil = self._decoder.stencil(header) or self._stencil
            keys = keys_of(message)
            cost = message_cost(header_bytes - SEQUENCE_BYTES, len(payload))
            stale = self._state.admit(sequence, keys, cost)
            self._hand_over(sequence, message, keys, stale)
        if not self._told:
            self._tell()

    def _receive_free(self, message: Message) -> None:
        if isinstance(message, Abort):
            self._state.bury(message.key)
            if self._assembly is not None and self._assembly.keys == (message.key,):
                self._state.release(self._assembly.sequence)
                self._assembly = None
            self._owes(True)
        self._deliver(message, _nothing_to_release)

    def _receive_shared(self, header: Header, header_bytes: int, payload: memoryview) -> None:
        if self.segment is None or len(payload):
            raise WireFormatError("shared payload without shared memory")
        view = self.segment.view(header.sequence, header.shared.offset, header.payload_bytes)
        message = self._decoder.decode(header, (view,))
        keys = keys_of(message)
        cost = message_cost(header_bytes - SEQUENCE_BYTES, header.payload_bytes)
        if header.shared.bulk:
            self._state.begin_bulk(header.sequence, keys, cost)
            stale = self._state.end_bulk(header.sequence)
        else:
            stale = self._state.admit(header.sequence, keys, cost)
        self._hand_over(header.sequence, message, keys, stale)

    def _begin(self, header: Header, header_bytes: int, payload: memoryview) -> None:
        if self._assembly is not None:
            raise WireFormatError("two messages in parts at a time")
        keys = self._decoder.keys(header)
        if len(keys) != 1:
            raise WireFormatError("message in parts about no single request")
        self._assembly = Assembly(header, payload, keys, self._options.max_message_bytes)
        cost = message_cost(header_bytes - SEQUENCE_BYTES, header.payload_bytes)
        self._state.begin_bulk(header.sequence, keys, cost)

    def _receive_part(self, header: Header, payload: memoryview) -> None:
        assembly = self._assembly
        if assembly is None:
            raise WireFormatError("part of no message")
        if not assembly.add(header, payload):
            return
        self._assembly = None
        message = self._decoder.decode(assembly.header, assembly.pieces)
        stale = self._state.end_bulk(assembly.sequence)
        self._hand_over(assembly.sequence, message, assembly.keys, stale)

    def _hand_over(
        self,
        sequence: int,
        message: Message,
        keys: tuple[RequestKey, ...],
        stale: Sequence[int],
    ) -> None:
        if stale:
            if len(stale) == len(keys):
                return
            if isinstance(message, FRAMES):
                message = rows.without(message, set(stale))
        self._deliver(message, partial(self.release, sequence))

    def release(self, sequence: int, key: RequestKey | None = None) -> None:
        """The receiver is done with a message, or with one request's row of it."""
        self._state.release(sequence, key)
        if self._state.unsaid_bytes >= self._urgent_bytes:
            self._owes(True)
        elif not self._told:
            self._tell()

    def _tell(self) -> None:
        """Say that there is something to acknowledge."""
        self._told = True
        self._owes(False)

    def take_owed(self) -> tuple[Owed, list[int]] | None:
        """What to acknowledge now, and the shared blocks to give back; None if there is nothing."""
        self._told = False
        freed = self.segment.take_freed() if self.segment is not None else []
        if not self._state.owes and not freed:
            return None
        return self._state.take_owed(), freed

    def resume(self) -> tuple[Resume, list[int]]:
        """The state to begin a stream with, and the shared blocks in use."""
        in_use = self.segment.in_use() if self.segment is not None else []
        return self._state.resume(), in_use


def _nothing_to_release(key: RequestKey | None = None) -> None:
    """The Release of a message that costs no credit."""
