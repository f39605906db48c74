"""A stream that feeds a stream, as text feeds speech: two terminals, one of them optional.

`writer` makes one number per step and streams it to `text`, which shows it, and to `speaker`, which
turns it into a sound frame for `sound`. Writer and speaker run at once: the speaker starts on the
first number.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from omni_config.schema import PipelineConfig, StageConfig
from omni_config.settings import ProcessConfig

STAGES = "examples.two_level_stream.stages"
ROUTING = "examples.two_level_stream.routing"


class TwoLevelStreamPipelineConfig(PipelineConfig):
    """writer ~> text; writer ~> speaker ~> sound, each payload behind its stream."""

    architectures: ClassVar[tuple[str, ...]] = ("TwoLevelStreamExample",)
    terminal_stages_fn: ClassVar[str | None] = f"{ROUTING}.terminals"

    processes: dict[str, ProcessConfig] = Field(
        default_factory=lambda: {"speaker": ProcessConfig(num_replicas=2)},
        description="Replication per process group.",
    )

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the four stages."""
        return (
            StageConfig(
                name="writer",
                factory_path=f"{STAGES}.make_writer",
                next=("text", "speaker"),
                stream_to=("text", "speaker"),
                route_fn=f"{ROUTING}.route",
                stream_done_to_fn=f"{ROUTING}.route",
                process="writer",
            ),
            StageConfig(
                name="text",
                factory_path=f"{STAGES}.make_text",
                terminal=True,
                can_accept_stream_before_payload=True,
                process="text",
            ),
            StageConfig(
                name="speaker",
                factory_path=f"{STAGES}.make_speaker",
                next=("sound",),
                stream_to=("sound",),
                can_accept_stream_before_payload=True,
                process="speaker",
            ),
            StageConfig(
                name="sound",
                factory_path=f"{STAGES}.make_sound",
                terminal=True,
                can_accept_stream_before_payload=True,
                process="speaker",
            ),
        )


PIPELINES = (TwoLevelStreamPipelineConfig,)
