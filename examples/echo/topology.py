"""The smallest pipeline: text goes through three stages in two processes and comes back."""

from __future__ import annotations

from typing import ClassVar

from omni_config.schema import PipelineConfig, StageConfig

STAGES = "examples.echo.stages"


class EchoPipelineConfig(PipelineConfig):
    """trim -> reverse -> answer; the last one is the terminal."""

    architectures: ClassVar[tuple[str, ...]] = ("EchoExample",)

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the three stages."""
        return (
            StageConfig(
                name="trim", factory_path=f"{STAGES}.make_trim", next=("reverse",), process="front"
            ),
            StageConfig(
                name="reverse",
                factory_path=f"{STAGES}.make_reverse",
                next=("answer",),
                process="back",
            ),
            StageConfig(
                name="answer", factory_path=f"{STAGES}.make_answer", terminal=True, process="back"
            ),
        )


PIPELINES = (EchoPipelineConfig,)
