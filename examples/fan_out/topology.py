"""Fan-out and fan-in with a condition: a request is measured by the sides that it asks for.

`split` always tells `join` which sides to wait for, and sends the numbers to just these sides.
"""

from __future__ import annotations

from typing import ClassVar

from omni_config.schema import PipelineConfig, StageConfig

STAGES = "examples.fan_out.stages"
ROUTING = "examples.fan_out.routing"


class FanOutPipelineConfig(PipelineConfig):
    """split -> {total, largest, join}; {total, largest} -> join."""

    architectures: ClassVar[tuple[str, ...]] = ("FanOutExample",)

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the four stages."""
        return (
            StageConfig(
                name="split",
                factory_path=f"{STAGES}.make_split",
                next=("total", "largest", "join"),
                route_fn=f"{ROUTING}.route",
                project_payload={"join": f"{ROUTING}.without_numbers"},
                process="front",
            ),
            StageConfig(
                name="total",
                factory_path=f"{STAGES}.make_total",
                next=("join",),
                process="front",
            ),
            StageConfig(
                name="largest",
                factory_path=f"{STAGES}.make_largest",
                next=("join",),
                process="side",
            ),
            StageConfig(
                name="join",
                factory_path=f"{STAGES}.make_join",
                wait_for=("split", "total", "largest"),
                wait_for_fn=f"{ROUTING}.awaited",
                merge_fn=f"{ROUTING}.merge",
                terminal=True,
                process="back",
            ),
        )


PIPELINES = (FanOutPipelineConfig,)
