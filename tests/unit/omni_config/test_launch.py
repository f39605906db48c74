"""What a process is told when it is started."""

from __future__ import annotations

from typing import Any

from omni_config.planning.devices import Device, DeviceTable
from omni_config.planning.environment import Host
from omni_config.planning.launch import GroupLaunch, group_launch, launch_kwargs
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from tests.support.config import load_case
from tests.support.pipelines import FACTORY, chain, engine, replicas, stage
from tests.support.planning import signature

DEVICES = DeviceTable({gpu_id: Device(f"GPU-{gpu_id}") for gpu_id in range(4)})
HOST = Host({}, usable_cpus=16)


def _launches(config: PipelineConfig) -> tuple[PipelineRuntime, dict[str, GroupLaunch]]:
    runtime = prepare_pipeline_runtime(config, devices=DEVICES, environ=HOST.environ, run_id="r")
    groups = runtime.process_plan.all_groups
    return runtime, {it.name: group_launch(runtime, it, HOST, DEVICES) for it in groups}


def test_fractions_add_up_in_construction_order() -> None:
    config = load_case(
        {
            "yaml": "config_cls: Qwen3TTSPipelineConfig\nmodel_path: m\nstages:\n"
            "  tts_engine: {gpu_memory_fraction: 0.35}\n  vocoder: {gpu_memory_fraction: 0.1}\n"
        }
    )
    launch = _launches(config)[1]["pipeline"]
    assert [(it.name, it.gpu_id, it.process_fraction) for it in launch.stages] == [
        ("preprocessing", None, None),
        ("vocoder", 0, 0.1),
        ("tts_engine", 0, 0.44999999999999996),
    ]


def test_no_sum_is_told_when_one_stage_declared_none() -> None:
    config = chain(
        stage("a", process="all", gpu=0, gpu_memory_fraction=0.1), stage("b", process="all", gpu=0)
    )
    launch = _launches(config)[1]["all"]
    assert [it.process_fraction for it in launch.stages] == [None, None]


def test_a_rank_sees_its_card_as_the_first_one() -> None:
    runtime, launches = _launches(chain(engine("llm", gpu=(0, 2), tp_size=2)))
    follower = launches["llm_tp1"]
    assert follower.environment["CUDA_VISIBLE_DEVICES"] == "2"
    assert follower.startup_lock == "omnipipe_gpu_GPU-2_startup.lock"
    known = signature(FACTORY, ["gpu_id", "tp_rank", "tp_size", "nccl_port"])
    kwargs = launch_kwargs(runtime, follower.group, follower.stages[0], known, nccl_port=29501)
    assert kwargs == {"gpu_id": 0, "tp_rank": 1, "tp_size": 2, "nccl_port": 29501}


def test_mps_and_weight_sharing_come_on_top_of_what_was_written() -> None:
    settings: dict[str, Any] = {
        "gpu": 1,
        "gpu_memory_fraction": 0.3,
        "engine": {"max_total_tokens": 9},
        "env": {"A": "1"},
    }
    config = chain(
        engine("llm", **settings), mps="auto", weight_share="on", processes=replicas(llm=[1, 1])
    )
    launches = _launches(config)[1]
    leader, follower = launches["llm@r0"], launches["llm@r1"]
    assert leader.environment["A"] == "1"
    assert leader.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert leader.environment["OMNI_WEIGHT_SHARE"].startswith("leader:")
    assert leader.stages[0].gpu_id == 0
    assert (leader.starts_last, follower.starts_last) == (False, True)
    assert leader.startup_lock == follower.startup_lock == "omnipipe_gpu_GPU-1_startup.lock"


def test_an_mps_client_and_a_rank_on_one_card_take_one_lock() -> None:
    config = chain(
        engine("llm", gpu=(0, 1), tp_size=2, gpu_memory_fraction=0.3),
        stage("a", gpu=1, gpu_memory_fraction=0.2),
        mps="on",
    )
    launches = _launches(config)[1]
    assert launches["a"].environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert launches["a"].startup_lock == launches["llm_tp1"].startup_lock


def test_byte_budgets_travel_beside_the_arguments() -> None:
    config = chain(
        engine(
            "llm",
            gpu=0,
            total_reserve_bytes=40,
            enforce_total_reserve=False,
            engine={"kv_cache_bytes": 2, "max_running_requests": 8},
        )
    )
    runtime, launches = _launches(config)
    launch = launches["llm"].stages[0]
    assert (launch.kv_cache_bytes, launch.total_reserve_bytes) == (2, 40)
    assert not launch.enforce_total_reserve
    known = signature(FACTORY, ["gpu_id", "server_args_overrides"])
    kwargs = launch_kwargs(runtime, launches["llm"].group, launch, known)
    assert kwargs["server_args_overrides"] == {"max_running_requests": 8}


def test_each_process_has_an_address_and_its_share_of_the_cpus() -> None:
    launches = _launches(chain(stage("a"), stage("b")))[1]
    assert launches["a"].address == "unix:/tmp/omnipipe/org-model-r/a.sock"
    assert launches["a"].startup_lock is None
    assert launches["b"].environment == {"OMP_NUM_THREADS": "8"}
