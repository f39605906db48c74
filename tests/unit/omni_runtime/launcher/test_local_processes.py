"""What each process of a run is told, and how the processes depend on each other."""

from pathlib import Path
from typing import Any

import pytest

from omni_config.planning.devices import NO_DEVICES, Device, DeviceTable
from omni_config.planning.environment import Host
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from omni_runtime.launcher.local_processes import (
    CONSTRUCTION_LOCK_VARIABLE,
    LocalProcess,
    SocketPathTooLong,
    Wiring,
    local_processes,
)
from tests.support.pipelines import chain, engine, replicas, stage

FOLDER = Path("/tmp/omnipipe/org-model-run1/up")


def processes(
    config: PipelineConfig, *, devices: DeviceTable = NO_DEVICES, **wiring: Any
) -> dict[str, LocalProcess]:
    runtime = prepare_pipeline_runtime(
        config, devices=devices, run_id="run1", signatures=lambda path: None
    )
    given: dict[str, Any] = {"folder": FOLDER, "listen": ("127.0.0.1:8000",)}
    wired = Wiring(config_file=FOLDER / "config.yaml", **given | wiring)
    found = local_processes(runtime, wired, Host({"A": "shell"}, 8), devices)
    return {process.name: process for process in found}


def test_a_group_is_told_its_name_its_address_and_where_the_gateway_is() -> None:
    found = processes(chain(stage("front"), stage("back")), pipelines=("mine.topology",))
    assert list(found) == ["gateway", "front", "back"]
    assert list(found["front"].command.argv[2:]) == [
        "omni_runtime.group",
        *("--config", f"{FOLDER}/config.yaml", "--run-id", "run1"),
        *("--pipelines", "mine.topology"),
        *("--group", "front", "--listen", "unix:/tmp/omnipipe/org-model-run1/front.sock"),
        *("--gateway", f"unix:{FOLDER}/gateway.sock"),
    ]


def test_the_gateway_listens_for_groups_and_for_clients() -> None:
    argv = processes(chain(stage("only")))["gateway"].command.argv
    assert [argv[at + 1] for at, word in enumerate(argv) if word == "--listen"] == [
        f"unix:{FOLDER}/gateway.sock",
        "127.0.0.1:8000",
    ]


def test_metrics_pages_take_ports_from_the_given_one_on() -> None:
    found = processes(chain(stage("front"), stage("back")), metrics_port=9100)
    ports = [process.command.argv[-1] for process in found.values()]
    assert ports == ["9100", "9101", "9102"]
    assert not any(
        "--metrics-port" in p.command.argv for p in processes(chain(stage("a"))).values()
    )


def test_a_group_called_gateway_keeps_its_name() -> None:
    assert list(processes(chain(stage("gateway")))) == ["omni-gateway", "gateway"]


def test_groups_on_one_card_construct_under_one_lock() -> None:
    config = chain(
        engine("thinker", gpu=0, gpu_memory_fraction=0.4),
        engine("talker", gpu=0, gpu_memory_fraction=0.4),
        stage("text"),
    )
    table = DeviceTable({0: Device("GPU-1")}, visible_count=1)
    found = processes(config, devices=table)
    locks = [found[name].command.environment.get(CONSTRUCTION_LOCK_VARIABLE) for name in found]
    assert locks == [None, "omnipipe_gpu_GPU-1_startup.lock"] * 1 + [
        "omnipipe_gpu_GPU-1_startup.lock",
        None,
    ]


def test_each_rank_is_a_process_and_takes_the_other_down() -> None:
    found = processes(chain(engine("thinker", tp_size=2, gpu=(0, 1)), stage("text")))
    assert found["thinker_tp0"].role.takes_down == ("thinker_tp1",)
    assert found["thinker_tp1"].role.takes_down == ("thinker_tp0",)
    assert found["thinker_tp1"].command.environment["CUDA_VISIBLE_DEVICES"] == "1"


def test_followers_start_after_their_leader_and_stop_before_it() -> None:
    talker = engine("talker", gpu=0, gpu_memory_fraction=0.3, engine={"max_total_tokens": 1000})
    config = chain(talker, stage("sound"), processes=replicas(talker=[0, 0]), weight_share="on")
    found = processes(config)
    leader, follower = found["talker@r0"].role, found["talker@r1"].role
    assert (leader.takes_down, follower.starts_after) == (("talker@r1",), "talker@r0")
    assert found["gateway"].role.stop_rank < follower.stop_rank < leader.stop_rank
    share = found["talker@r1"].command.environment["OMNI_WEIGHT_SHARE"]
    assert share == "follower:/tmp/omnipipe/org-model-run1/weights/talker/gpu0"


def test_a_directory_without_room_for_the_gateway_socket_is_refused() -> None:
    with pytest.raises(SocketPathTooLong, match="use a shorter"):
        processes(chain(stage("only")), folder=Path("/tmp") / ("x" * 100))
