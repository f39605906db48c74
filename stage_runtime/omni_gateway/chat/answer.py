"""From the chunks of terminal stages to the events of an answer.

Terminal stages name the modality of their output. Text comes as rows of UTF-8 bytes, speech as rows
of samples; the shapes are those of the pipeline's decode and vocoder stages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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
from omni_gateway.coordinator import Output, RequestHandle, spans_of
from omni_wire.arrays import array_to_numpy
from omni_wire.errors import StageFailed
from omni_wire.messages import Tree

FULL_SCALE = np.float32(32767)


async def answer_events(
    handle: RequestHandle, sample_rate: int, stage_events: bool
) -> AsyncIterator[ChatEvent]:
    """Yield the events of one request; the last one is `Finished`.

    Args:
        handle: the request; reading it returns credit to its stages.
        sample_rate: of the pipeline's speech, in hertz.
        stage_events: whether to tell when each stage worked on it.

    Raises:
        ServiceError: the request failed.
    """
    samples = 0
    async for output in handle:
        for event in events_of(output, sample_rate):
            if isinstance(event, AudioDelta):
                samples += len(event.samples)
            yield event
    results = await handle.results()
    if stage_events:
        yield StageTimes(spans_of(results, handle.admitted))
    yield finished_of(results, samples / sample_rate)


def events_of(output: Output, sample_rate: int) -> list[ChatEvent]:
    """Return one chunk of a terminal stage as events.

    Raises:
        StageFailed: the chunk lacks what its modality needs.
    """
    columns = {name: array_to_numpy(value) for name, value in output.columns.items()}
    try:
        if output.modality == "text":
            return _text(columns, output.meta)
        if output.modality == "audio":
            return [_audio(columns, sample_rate)]
    except (KeyError, IndexError, TypeError, UnicodeDecodeError) as error:
        message = f"stage '{output.stage}' sent a {output.modality} chunk without {error}"
        raise StageFailed(message, stage=output.stage) from error
    data: dict[str, Tree] = dict(columns)
    return [StageDelta(output.stage, output.modality, data, output.chunk_id)]


def finished_of(results: Mapping[str, Tree], audio_seconds: float) -> Finished:
    """Return the end of an answer from the results of its terminal stages."""
    text = next(
        (one for one in results.values() if isinstance(one, Mapping) and "usage" in one), {}
    )
    usage = text.get("usage") if isinstance(text, Mapping) else None
    counts = usage if isinstance(usage, Mapping) else {}
    return Finished(
        reason=str(text.get("finish_reason") or "stop"),
        usage=Usage(
            prompt_tokens=_count(counts, "prompt_tokens"),
            completion_tokens=_count(counts, "completion_tokens"),
            cached_tokens=_count(counts, "cached_tokens"),
            audio_seconds=audio_seconds,
        ),
        results=results,
    )


def _text(columns: Mapping[str, npt.NDArray[np.generic]], meta: Tree) -> list[ChatEvent]:
    length = int(columns["bytes"])
    text = columns["text"][:length].tobytes().decode("utf-8")
    more: Any = meta if isinstance(meta, Mapping) else {}
    logprobs = tuple(
        TokenLogprob(_likelihood(one), tuple(map(_likelihood, one["top"])))
        for one in more.get("logprobs", ())
    )
    calls = [ToolCallDelta(**call) for call in more.get("tool_calls", ())]
    return [TextDelta(text, int(columns["tokens"]), logprobs), *calls]


def _likelihood(token: Mapping[str, Any]) -> Likelihood:
    return Likelihood(token["bytes"], token["logprob"])


def _audio(columns: Mapping[str, npt.NDArray[np.generic]], sample_rate: int) -> AudioDelta:
    pcm = columns["pcm"]
    samples = pcm.astype(np.float32, copy=False)
    if pcm.dtype == np.int16:
        samples = samples / FULL_SCALE
    return AudioDelta(samples, sample_rate, int(columns["offset"]))


def _count(counts: Mapping[str, Tree], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) else 0
