"""The warm-ups of the shipped pipelines cross everything that a request can cross."""

from __future__ import annotations

import pytest

from omni_config.schema import PipelineConfig
from omni_gateway.coordinator import PipelineTopology, topology_of
from omni_models.catalog import registry

RUNNABLE = [cls for name in registry().names if (cls := registry().by_name(name)).plan_only is None]


def terminals(topology: PipelineTopology) -> set[str]:
    return {
        terminal
        for view in topology.warm_ups.values()
        for terminal in topology.expected_terminals(view)
    }


@pytest.mark.parametrize("cls", RUNNABLE, ids=lambda cls: cls.__name__)
def test_warm_ups_cross_every_group_and_end_at_every_terminal(cls: type[PipelineConfig]) -> None:
    topology = topology_of(cls(model_path="m"))
    crossed = {group for name in topology.warm_ups for group in topology.warm_up_groups(name)}
    assert crossed == set(topology.groups)
    assert terminals(topology) == set(topology.terminals)


@pytest.mark.parametrize("cls", RUNNABLE, ids=lambda cls: cls.__name__)
def test_it_is_said_what_every_terminal_makes(cls: type[PipelineConfig]) -> None:
    config = cls(model_path="m")
    assert set(config.terminal_modalities) == set(config.terminals)
    assert set(config.terminal_modalities.values()) <= {"text", "audio"}
