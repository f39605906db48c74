"""The environment of a process: who wins, and that losing is never silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from omni_config.planning.environment import Host, children_environment, worker_environment
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import CPU_COUNT, PipelineConfig, StageConfig
from tests.support.pipelines import chain, stage


class WithWishes(PipelineConfig):
    """A model that wants things of its processes."""

    env_floor: ClassVar[Mapping[str, str]] = {"FLOOR": "floor", "X": "floor"}

    def stage_env(self, stage: StageConfig) -> dict[str, str]:
        """Want every CPU for the first stage."""
        return {"OMP_NUM_THREADS": CPU_COUNT} if stage.name == "front" else {}


def _changed(config: PipelineConfig, host: Host, process_count: int = 1) -> dict[str, str]:
    return worker_environment(config, config.stages, host, process_count)


def test_a_value_that_the_shell_overrides_is_told_with_its_path() -> None:
    config = chain(
        stage("a", env={"X": "1", "SAME": "s"}), env_defaults={"Y": "2", "LD_PRELOAD": "a.so"}
    )
    environ = {"X": "shell", "Y": "shell", "SAME": "s", "LD_PRELOAD": "b.so"}
    assert prepare_pipeline_runtime(config, environ=environ).warnings == (
        "env_defaults.Y='2' has no effect: the environment already sets Y='shell', which wins",
        "stages.a.env.X='1' has no effect: the environment already sets X='shell', which wins",
    )


def test_planning_for_another_machine_says_nothing_about_this_shell() -> None:
    assert prepare_pipeline_runtime(chain(stage("a", env={"HOME": "/x"}))).warnings == ()


def test_the_stage_beats_the_pipeline_which_beats_the_model() -> None:
    config = chain(
        stage("a", env={"X": "stage"}),
        pipeline=WithWishes,
        env_defaults={"X": "pipeline", "Y": "pipeline"},
    )
    assert _changed(config, Host()) == {"FLOOR": "floor", "X": "stage", "Y": "pipeline"}


@pytest.mark.parametrize(
    ("cpus", "processes", "threads"), [(16, 7, "2"), (16, 1, "16"), (2, 7, "1")]
)
def test_processes_share_the_cpus_equally(cpus: int, processes: int, threads: str) -> None:
    changed = _changed(chain(stage("a")), Host(usable_cpus=cpus), processes)
    assert changed == {"OMP_NUM_THREADS": threads}


@pytest.mark.parametrize(
    "host",
    [Host(usable_cpus=16), Host({"OMP_NUM_THREADS": "3"}, usable_cpus=16)],
    ids=["written", "the shell's"],
)
def test_a_written_thread_count_stays(host: Host) -> None:
    changed = _changed(chain(stage("a", env={"OMP_NUM_THREADS": "5"})), host, 2)
    assert changed.get("OMP_NUM_THREADS", host.environ.get("OMP_NUM_THREADS")) in ("5", "3")
    assert ("OMP_NUM_THREADS" in changed) == (not host.environ)


def test_the_placeholder_of_all_cpus_is_filled_in() -> None:
    config = chain(stage("front"), pipeline=WithWishes)
    assert _changed(config, Host(usable_cpus=12), 4)["OMP_NUM_THREADS"] == "12"


def test_preloaded_libraries_of_all_layers_are_joined_once() -> None:
    config = chain(
        stage("a", process="all", env={"LD_PRELOAD": "a.so"}),
        stage("b", process="all", env={"LD_PRELOAD": "b.so:a.so"}),
        env_defaults={"LD_PRELOAD": "c.so"},
    )
    changed = _changed(config, Host({"LD_PRELOAD": "c.so d.so"}))
    assert changed == {"LD_PRELOAD": "a.so:b.so:c.so:d.so"}


def test_a_shells_preload_alone_changes_nothing() -> None:
    assert _changed(chain(stage("a")), Host({"LD_PRELOAD": "d.so"})) == {}


def test_native_children_see_their_cards_by_the_launchers_names() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}
    assert children_environment((1, 2), environ) == {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-c"}
    assert children_environment((), environ) == {}
