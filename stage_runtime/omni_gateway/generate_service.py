"""The gRPC API for generic pipelines: trees in, chunks and results out.

A client that leaves cancels its handler, and leaving the handle's context aborts the request in
every stage. A client that reads slowly stalls in its stream's flow control: its request alone
waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from omni_gateway.coordinator import Coordinator, Output, RequestHandle, spans_of
from omni_gateway.pipeline_view import PipelineView
from omni_gateway.request_view import view_of
from omni_gateway.stage_events import stage_events
from omni_gateway.tracing import request_span
from omni_wire.errors import ServiceError
from omni_wire.messages import Tree
from omni_wire.status import abort_with
from omni_wire.trees import to_proto
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc

_GenerateContext: TypeAlias = "grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateResponse]"
_StreamContext: TypeAlias = "grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateEvent]"
_ConverseContext: TypeAlias = "grpc.aio.ServicerContext[pb.ConverseRequest, pb.ConverseEvent]"
_PipelineContext: TypeAlias = (
    "grpc.aio.ServicerContext[pb.GetPipelineRequest, pb.GetPipelineResponse]"
)

META = "meta"
"""Name under which a chunk carries the meta tree of its frame, beside the columns."""
FINISHED = "stop"


@dataclass(eq=False)
class GenerateService(pb_grpc.GatewayServiceServicer):
    """Serves `omni.v1.GatewayService` from a Coordinator."""

    coordinator: Coordinator
    pipeline: PipelineView

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: _GenerateContext
    ) -> pb.GenerateResponse:
        """Answer once with the results of all terminal stages."""
        async with self._submitted(request, context) as handle:
            outputs = await handle.results()
            return pb.GenerateResponse(
                request_id=handle.request_id,
                outputs={stage: to_proto(result) for stage, result in outputs.items()},
            )

    async def GenerateStream(  # noqa: N802
        self, request: pb.GenerateRequest, context: _StreamContext
    ) -> AsyncIterator[pb.GenerateEvent]:
        """Answer with chunks as they arise, then with each terminal's result."""
        async with self._submitted(request, context) as handle:
            name = handle.request_id
            yield pb.GenerateEvent(request_id=name, started=pb.Started(model=self.pipeline.name))
            async for output in handle:
                yield pb.GenerateEvent(request_id=name, output=_chunk(output))
            results = await handle.results()
            if request.stage_events:
                for event in stage_events(spans_of(results, handle.admitted)):
                    yield pb.GenerateEvent(request_id=name, stage=event)
            for stage, result in results.items():
                final = pb.Output(stage=stage, data=to_proto(result), final=True)
                yield pb.GenerateEvent(request_id=name, output=final)
            yield pb.GenerateEvent(request_id=name, finished=pb.Finished(reason=FINISHED))

    async def Converse(  # type: ignore[override]  # noqa: N802  # writes nothing
        self, request_iterator: AsyncIterator[pb.ConverseRequest], context: _ConverseContext
    ) -> None:
        """Refuse: conversations need the chat API."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Converse is not served here")

    async def GetPipeline(  # noqa: N802
        self, request: pb.GetPipelineRequest, context: _PipelineContext
    ) -> pb.GetPipelineResponse:
        """Tell what runs here."""
        return self.pipeline.describe(self.coordinator, with_config=request.config)

    @asynccontextmanager
    async def _submitted(
        self, request: pb.GenerateRequest, context: _GenerateContext | _StreamContext
    ) -> AsyncIterator[RequestHandle]:
        """Submit a request for as long as the context lasts; errors become the call's status."""
        try:
            with request_span("generate", request.request_id, headers(context)) as trace_context:
                handle = self.coordinator.submit(
                    view_of(request, self.pipeline.name, trace_context),
                    request_id=request.request_id or None,
                    timeout_seconds=timeout_of(request, context),
                )
                async with handle:
                    yield handle
        except ServiceError as error:
            await abort_with(context, error)


def description_handler(service: GenerateService) -> grpc.GenericRpcHandler:
    """Return a handler that tells what runs here and serves nothing else.

    An operator asks for it where groups register, so that it needs no way to the clients' port.
    """
    handler = grpc.unary_unary_rpc_method_handler(
        service.GetPipeline,
        request_deserializer=pb.GetPipelineRequest.FromString,
        response_serializer=pb.GetPipelineResponse.SerializeToString,
    )
    name = pb.DESCRIPTOR.services_by_name["GatewayService"].full_name
    return grpc.method_handlers_generic_handler(name, {"GetPipeline": handler})


def timeout_of(
    request: pb.GenerateRequest, context: _GenerateContext | _StreamContext | _ConverseContext
) -> float | None:
    """Return the shorter of the request's own timeout and the call's deadline, in seconds."""
    given = [context.time_remaining()]
    if request.HasField("timeout"):
        given.append(request.timeout.ToTimedelta().total_seconds())
    return min((seconds for seconds in given if seconds is not None), default=None)


def headers(context: _GenerateContext | _StreamContext | _ConverseContext) -> Mapping[str, str]:
    """Return the text metadata of a call."""
    metadata = context.invocation_metadata() or ()
    return {key: value for key, value in metadata if isinstance(value, str)}


def _chunk(output: Output) -> pb.Output:
    data: dict[str, Tree] = dict(output.columns)
    if output.meta is not None:
        data[META] = output.meta
    return pb.Output(
        stage=output.stage,
        modality=output.modality,
        chunk_id=output.chunk_id,
        data=to_proto(data),
    )
