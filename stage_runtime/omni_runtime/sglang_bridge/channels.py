"""SGLang's channels replaced by calls into the hosting stage: no sockets, no copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler_components.ipc_channels import SchedulerIpcChannels
from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer
from sglang.srt.managers.scheduler_components.request_receiver import SchedulerRequestReceiver


class NoChannel:
    """Takes what would leave over a socket; whatever matters leaves by other seams."""

    socket = None

    def send_output(self, output: object, recv_obj: object = None) -> None:
        """Drop the output."""


def no_channels() -> SchedulerIpcChannels:
    """Return channels that receive and send nothing."""
    return SchedulerIpcChannels(
        recv_from_tokenizer=None,
        recv_from_rpc=None,
        send_to_tokenizer=NoChannel(),
        send_to_detokenizer=NoChannel(),
        send_metrics_from_scheduler=None,
    )


class HostReceiver(SchedulerRequestReceiver):
    """Takes requests from the hosting stage.

    Every rank is hosted and gets the same messages in the same pass, so nothing is broadcast. A
    frozen dataclass of SGLang's, so the source of requests is bound once, after construction.
    """

    __slots__ = ("_pull",)
    _pull: Callable[[], list[object]]

    def bind(self, pull: Callable[[], list[object]]) -> HostReceiver:
        """Set what gives the messages since the last call."""
        object.__setattr__(self, "_pull", pull)
        return self

    def _pull_raw_reqs(self) -> list[object]:
        return self._pull()

    def _broadcast_reqs_across_ranks(
        self, recv_reqs: list[object], local_reqs: list[object] | None = None
    ) -> list[object]:
        return [*recv_reqs, *(local_reqs or ())]


def host_receiver(
    stock: SchedulerRequestReceiver, pull: Callable[[], list[object]]
) -> HostReceiver:
    """Return a receiver like `stock` that takes its requests from `pull`."""
    values = {f.name: getattr(stock, f.name) for f in dataclasses.fields(stock)}
    return HostReceiver(**values).bind(pull)


class HostStreamer(SchedulerOutputStreamer):
    """Hands the requests of a step to the hosting stage as they are."""

    sink: Callable[[Sequence[Req]], None]

    def stream_output(
        self, reqs: Sequence[Req], return_logprob: bool, skip_req: Req | None = None
    ) -> None:
        """Called once per step, after tokens were appended and finished rows released."""
        self.sink([req for req in reqs if req is not skip_req and not _told(req)])


def _told(req: Req) -> bool:
    """Whether the end of the request went out before: overlapped steps show it twice."""
    return bool(req.finished() and req.finished_output)
