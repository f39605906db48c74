"""The Python SDK for a running pipeline, synchronous and asynchronous.

It stays light enough to install in any application: gRPC, protobuf and numpy.

    from omni_client import OmniClient, image

    with OmniClient("localhost:50050") as client:
        answer = client.chat(["What is this?", image("cat.png")], modalities=["text", "audio"])
        print(answer.text)
        answer.audio.to_wav("answer.wav")
"""

from omni_client.aio import AsyncEventStream, AsyncOmniClient
from omni_client.answers import Answer
from omni_client.client import EventStream, OmniClient
from omni_client.connection import Retries, Tls
from omni_client.content import Media, Message, audio, image, video
from omni_client.events import (
    AudioChunk,
    Event,
    Finished,
    StageOutput,
    StageProgress,
    Started,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from omni_client.pipeline import Instance, Pipeline, Stage
from omni_client.requests import ChatOptions, Sampling, Voice
from omni_client.sound import Audio
from omni_client.tools import JsonSchema, Tool, ToolCall
from omni_wire.errors import ServiceError

__all__ = [
    "Answer",
    "AsyncEventStream",
    "AsyncOmniClient",
    "Audio",
    "AudioChunk",
    "ChatOptions",
    "Event",
    "EventStream",
    "Finished",
    "Instance",
    "JsonSchema",
    "Media",
    "Message",
    "OmniClient",
    "Pipeline",
    "Retries",
    "Sampling",
    "ServiceError",
    "Stage",
    "StageOutput",
    "StageProgress",
    "Started",
    "TextDelta",
    "Tls",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "Voice",
    "audio",
    "image",
    "video",
]
