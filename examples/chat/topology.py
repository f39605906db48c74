"""A pipeline that chats without a model, for trying clients and the gateway's APIs.

It has the shape of a speech pipeline: `writer` makes the words of an answer and streams them to
`decode`, which shows them, and to `code2wav`, which makes a tone of each. What the two send to the
client has the columns of the real stages.
"""

from __future__ import annotations

from typing import ClassVar

from omni_config.schema import PipelineConfig, StageConfig

STAGES = "examples.chat.stages"
ROUTING = "examples.chat.routing"


class ChatExamplePipelineConfig(PipelineConfig):
    """writer ~> decode; writer ~> code2wav, all in one process."""

    architectures: ClassVar[tuple[str, ...]] = ("ChatExample",)
    terminal_stages_fn: ClassVar[str | None] = f"{ROUTING}.terminals"
    audio_sample_rate: ClassVar[int] = 24_000
    stage_parameters: ClassVar[dict[str, dict[str, str]]] = {
        "writer": {"max_tokens": "max_tokens"},
        "code2wav": {"speaker": "speaker"},
    }
    terminal_modalities: ClassVar[dict[str, str]] = {"decode": "text", "code2wav": "audio"}

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the three stages."""
        return (
            StageConfig(
                name="writer",
                factory_path=f"{STAGES}.make_writer",
                next=("decode", "code2wav"),
                stream_to=("decode", "code2wav"),
                route_fn=f"{ROUTING}.route",
                stream_done_to_fn=f"{ROUTING}.route",
                process="chat",
            ),
            _terminal("decode"),
            _terminal("code2wav"),
        )


def _terminal(name: str) -> StageConfig:
    return StageConfig(
        name=name,
        factory_path=f"{STAGES}.make_{name}",
        terminal=True,
        can_accept_stream_before_payload=True,
        process="chat",
    )


PIPELINES = (ChatExamplePipelineConfig,)
