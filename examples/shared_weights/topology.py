"""A table of numbers as large as you like, served by several copies that hold it once."""

from __future__ import annotations

from typing import ClassVar

from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig


class SharedWeightsPipelineConfig(PipelineConfig):
    """One engine, which looks rows of its table up."""

    architectures: ClassVar[tuple[str, ...]] = ("SharedWeightsExample",)

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the one stage."""
        return (
            EngineStageConfig(
                name="engine",
                factory_path="examples.shared_weights.stages.make_engine",
                terminal=True,
                process="engine",
            ),
        )


PIPELINES = (SharedWeightsPipelineConfig,)
