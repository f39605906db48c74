"""A toy engine whose matrix is divided between ranks: the smallest tensor-parallel stage."""

from __future__ import annotations

from typing import ClassVar

from omni_config.schema import PipelineConfig, StageConfig


class TensorParallelPipelineConfig(PipelineConfig):
    """One stage that generates tokens, on as many ranks as `stages.engine.tp_size` says."""

    architectures: ClassVar[tuple[str, ...]] = ("TensorParallelExample",)
    tensor_parallel_stages: ClassVar[tuple[str, ...]] = ("engine",)

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the one stage."""
        return (
            StageConfig(
                name="engine",
                factory_path="examples.tensor_parallel.stages.make_engine",
                terminal=True,
                process="engine",
            ),
        )


PIPELINES = (TensorParallelPipelineConfig,)
