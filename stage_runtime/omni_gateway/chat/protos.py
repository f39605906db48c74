"""Chat over gRPC: `omni.v1` messages to requests, and events to `omni.v1` messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.message import Message as ProtoMessage

from omni_gateway.chat.audio import AudioEncoder
from omni_gateway.chat.events import (
    AudioDelta,
    ChatEvent,
    Finished,
    Likelihood,
    StageDelta,
    StageTimes,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from omni_gateway.chat.request import ChatRequest, checked_choices, refused
from omni_gateway.chat.whole import WholeAnswer, WholeAnswers
from omni_gateway.stage_events import stage_events
from omni_wire.messages import Tree
from omni_wire.trees import from_proto, to_proto
from omni_wire.v1 import gateway_pb2 as pb

SERVED = frozenset(
    (
        "request_id",
        "model",
        "messages",
        "modalities",
        "sampling",
        "talker",
        "audio",
        "params",
        "timeout",
        "video",
        "choices",
        "labels",
        "tools",
        "tool_choice",
        "response_format",
        "parallel_tool_calls",
        "stage_events",
        "stage_sampling",
        "stage_params",
    )
)
"""Fields of a chat request that are acted on; any other that is set is refused by name."""

_TALKER_PARAMS = {
    "temperature": "talker_temperature",
    "top_p": "talker_top_p",
    "top_k": "talker_top_k",
    "repetition_penalty": "talker_repetition_penalty",
    "max_tokens": "talker_max_tokens",
}
_VIDEO_INPUTS = {
    "fps": "video_fps",
    "max_frames": "video_max_frames",
    "min_pixels": "video_min_pixels",
    "max_pixels": "video_max_pixels",
    "use_audio": "use_audio_in_video",
}
_PART_TYPES = {"image": "image_url", "audio": "audio_url", "video": "video_url"}


def chat_request(
    request: pb.GenerateRequest, timeout_seconds: float | None, uploads: Mapping[str, bytes]
) -> ChatRequest:
    """Return a chat request.

    Args:
        timeout_seconds: the shorter of the request's own timeout and the call's deadline.
        uploads: files uploaded earlier on the same stream, by id.

    Raises:
        InvalidRequest: a field is not served, or means nothing.
    """
    for descriptor, _ in request.ListFields():
        if descriptor.name not in SERVED:
            raise refused(descriptor.name, "is not served by this pipeline")
    messages: list[Tree] = [
        _message(message, f"messages[{index}]", uploads)
        for index, message in enumerate(request.messages)
    ]
    video = {
        _VIDEO_INPUTS[descriptor.name]: _plain(value)
        for descriptor, value in request.video.ListFields()
    }
    return ChatRequest(
        inputs={"messages": messages, **video},
        params=_params(request),
        modalities=tuple(request.modalities),
        request_id=request.request_id,
        choices=checked_choices(request.choices or 1, "choices"),
        timeout_seconds=timeout_seconds,
        labels=dict(request.labels),
        stage_events=request.stage_events,
        stage_settings={
            "stage_sampling": {
                stage: _set_fields(sampling) for stage, sampling in request.stage_sampling.items()
            },
            "stage_params": {
                stage: {entry.key: from_proto(entry.value) for entry in given.entries}
                for stage, given in request.stage_params.items()
            },
        },
    )


def event_protos(
    request_id: str, choice: int, event: ChatEvent, encoder: AudioEncoder
) -> Iterator[pb.GenerateEvent]:
    """Yield the messages of one event."""
    for message in _messages(event, encoder):
        message.request_id = request_id
        message.choice = choice
        yield message


def _messages(event: ChatEvent, encoder: AudioEncoder) -> Iterator[pb.GenerateEvent]:
    match event:
        case TextDelta(text=text, logprobs=logprobs):
            if text or logprobs:
                found = list(map(logprob_proto, logprobs))
                yield pb.GenerateEvent(text=pb.TextDelta(text=text, logprobs=found))
        case ToolCallDelta():
            yield pb.GenerateEvent(tool_call=call_proto(event))
        case AudioDelta():
            yield pb.GenerateEvent(audio=_audio(event, encoder))
        case StageDelta():
            output = pb.Output(
                stage=event.stage,
                modality=event.modality,
                data=to_proto(event.data),
                chunk_id=event.chunk_id,
            )
            yield pb.GenerateEvent(output=output)
        case StageTimes(spans=spans):
            for told in stage_events(spans):
                yield pb.GenerateEvent(stage=told)
        case Finished():
            rest = encoder.finish()
            if rest:
                yield pb.GenerateEvent(audio=_file_end(rest, encoder))
            yield pb.GenerateEvent(usage=usage_proto(event.usage))
            yield pb.GenerateEvent(finished=pb.Finished(reason=event.reason))


def response_proto(
    request_id: str, whole: WholeAnswers, encoders: Sequence[AudioEncoder]
) -> pb.GenerateResponse:
    """Return complete answers as one message.

    Args:
        encoders: what encodes the speech of each.
    """
    response = pb.GenerateResponse(request_id=request_id, usage=usage_proto(whole.usage))
    for index, (answer, encoder) in enumerate(zip(whole.answers, encoders, strict=True)):
        response.choices.append(_choice(index, answer, encoder))
    for stage, result in whole.answers[0].finished.results.items():
        response.outputs[stage].CopyFrom(to_proto(result))
    return response


def _choice(index: int, answer: WholeAnswer, encoder: AudioEncoder) -> pb.Choice:
    samples = answer.samples
    audio = pb.Audio(
        data=encoder.whole(samples) if len(samples) else b"",
        format=pb.AudioFormat(encoding=encoder.encoding, sample_rate=encoder.sample_rate),
        channels=1,
        samples=len(samples),
    )
    return pb.Choice(
        index=index,
        text=answer.text,
        finish_reason=answer.finished.reason,
        audio=audio if len(samples) else None,
        tool_calls=map(call_proto, answer.calls),
        logprobs=map(logprob_proto, answer.logprobs),
        stages=stage_events(answer.stages.spans) if answer.stages else (),
    )


def usage_proto(usage: Usage) -> pb.Usage:
    """Return a usage as a message."""
    return pb.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        audio_seconds=usage.audio_seconds,
    )


def call_proto(call: ToolCallDelta) -> pb.ToolCall:
    """Return a call, or a piece of one, as a message."""
    return pb.ToolCall(id=call.id, name=call.name, arguments_json=call.arguments, index=call.index)


def logprob_proto(found: TokenLogprob) -> pb.TokenLogprob:
    """Return how likely a token was as a message."""
    message = _likelihood(found.token)
    message.top.extend(map(_likelihood, found.top))
    return message


def _likelihood(token: Likelihood) -> pb.TokenLogprob:
    return pb.TokenLogprob(token=token.text, logprob=token.logprob, token_bytes=token.spelled)


def _audio(event: AudioDelta, encoder: AudioEncoder) -> pb.AudioChunk:
    return pb.AudioChunk(
        data=encoder.encode(event.samples),
        sample_rate=event.sample_rate,
        sample_offset=event.offset,
        samples=len(event.samples),
        channels=1,
        encoding=encoder.encoding,
    )


def _file_end(data: bytes, encoder: AudioEncoder) -> pb.AudioChunk:
    return pb.AudioChunk(
        data=data,
        sample_rate=encoder.sample_rate,
        sample_offset=encoder.samples,
        channels=1,
        encoding=encoder.encoding,
    )


def _params(request: pb.GenerateRequest) -> dict[str, Tree]:
    params = {name: from_proto(node) for name, node in request.params.items()}
    params |= _set_fields(request.sampling)
    for descriptor, value in request.talker.ListFields():
        if descriptor.name == "voice":
            params["speaker"] = value
        elif descriptor.name == "seed":
            if params.setdefault("seed", value) != value:
                raise refused("talker.seed", "differs from sampling.seed; both draw from one")
        else:
            params[_TALKER_PARAMS[descriptor.name]] = _plain(value)
    return params | _structure_params(request)


def _structure_params(request: pb.GenerateRequest) -> dict[str, Tree]:
    """Return what the form of the answer becomes; what asks for nothing is left out."""
    params: dict[str, Tree] = {}
    form, choice = request.response_format, request.tool_choice
    if form.schema_json or form.type not in ("", "text"):
        params["response_format"] = _set_fields(form)
    if request.tools:
        params["tools"] = [_set_fields(tool) for tool in request.tools]
        if request.HasField("parallel_tool_calls"):
            params["parallel_tool_calls"] = request.parallel_tool_calls
    if choice.name:
        params["tool_choice"] = {"name": choice.name}
    elif choice.mode and (request.tools or choice.mode not in ("none", "auto")):
        params["tool_choice"] = choice.mode
    return params


def _set_fields(message: ProtoMessage) -> dict[str, Tree]:
    return {descriptor.name: _plain(value) for descriptor, value in message.ListFields()}


def _plain(value: object) -> Tree:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): float(one) for key, one in value.items()}
    return list(value)  # type: ignore[call-overload, no-any-return]  # a repeated scalar


def _message(message: pb.Message, where: str, uploads: Mapping[str, bytes]) -> dict[str, Tree]:
    parts: list[Tree] = [
        _part(part, f"{where}.content[{index}]", uploads)
        for index, part in enumerate(message.content)
    ]
    turn: dict[str, Tree] = {"role": message.role, "content": parts}
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    if message.name:
        turn["name"] = message.name
    if message.tool_calls:
        turn["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    return turn


def _tool_call(call: pb.ToolCall) -> Tree:
    function: dict[str, Tree] = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def _part(part: pb.ContentPart, where: str, uploads: Mapping[str, bytes]) -> Tree:
    kind = part.WhichOneof("content")
    if kind == "text":
        return {"type": "text", "text": part.text}
    if kind is None:
        raise refused(where, "is empty; a part holds text, image, audio or video")
    media: pb.Media = getattr(part, kind)
    if media.detail not in ("", "auto"):
        raise refused(f"{where}.detail", f"is '{media.detail}'; only 'auto' is served")
    name = _PART_TYPES[kind]
    source = media.WhichOneof("source")
    if source == "url":
        return {"type": name, name: {"url": media.url}}
    if source == "data":
        return {"type": name, name: {"data": media.data}}
    if source == "upload_id" and media.upload_id in uploads:
        return {"type": name, name: {"data": uploads[media.upload_id]}}
    if source == "upload_id":
        known = ", ".join(uploads) or "none"
        raise refused(f"{where}.upload_id", f"names no upload '{media.upload_id}'; known: {known}")
    raise refused(where, f"holds no {kind}; give url, data or upload_id")
