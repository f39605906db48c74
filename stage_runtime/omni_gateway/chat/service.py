"""Chat as both APIs use it: a request in, the events of its answers out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from omni_gateway.chat.answers import Answers
from omni_gateway.chat.features import refuse_undeclared
from omni_gateway.chat.metrics import ChatMetrics
from omni_gateway.chat.request import ChatRequest
from omni_gateway.coordinator import Coordinator, RequestHandle
from omni_gateway.errors import UnknownModel
from omni_gateway.pipeline_view import PipelineView
from omni_gateway.tracing import request_span


@dataclass(frozen=True, slots=True)
class ChatService:
    """Chat with one pipeline.

    Attributes:
        sample_rate: of the pipeline's speech, in hertz; 0 when it has none.
    """

    coordinator: Coordinator
    pipeline: PipelineView
    sample_rate: int
    metrics: ChatMetrics

    def check_model(self, name: str) -> None:
        """Check the model that a request names; empty stands for the only one.

        Raises:
            UnknownModel: it is not served here.
        """
        if name and name != self.pipeline.name:
            raise UnknownModel(
                f"model names '{name}'; this gateway serves '{self.pipeline.name}'",
                details={"field": "model"},
            )

    @asynccontextmanager
    async def submitted(
        self, request: ChatRequest, headers: Mapping[str, str], api: str
    ) -> AsyncIterator[Answers]:
        """Submit a request for as long as the context lasts; leaving it aborts what is left.

        Args:
            headers: of the call; only the W3C trace headers are read.
            api: `grpc` or `http`, for metrics.

        Raises:
            ServiceError: the gateway takes no request now, this one's id is in use, or the pipeline
                does not act on something in it.
        """
        request = request.settled(self.pipeline.config.stage_parameters)
        refuse_undeclared(request.params, self.pipeline.config.chat_features)
        handles: list[RequestHandle] = []
        with request_span("chat", request.request_id, headers) as trace:
            try:
                for index in range(request.choices):
                    one = request.choice(index)
                    handle = self.coordinator.submit(
                        one.view(trace),
                        request_id=one.request_id or None,
                        timeout_seconds=one.timeout_seconds,
                    )
                    handles.append(handle)
                meters = [self.metrics.answer(api) for _ in handles]
                yield Answers(handles, meters, self.sample_rate, request.stage_events)
            finally:
                for handle in handles:
                    handle.leave()
