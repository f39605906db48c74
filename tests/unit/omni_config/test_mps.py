"""MPS: decided for each card, with a reason, and `on` never leaves a card out unseen."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from omni_config.errors import PlanError
from omni_config.planning.devices import Device, DeviceTable
from omni_config.planning.mps import MpsDecision, state_root
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from tests.support.pipelines import chain, engine, stage

CARD_0, CARD_1 = Device("GPU-aaaa"), Device("GPU-bbbb")
BOUND = {"gpu_memory_fraction": 0.2}


def _decide(config: PipelineConfig, **known: Any) -> MpsDecision:
    return prepare_pipeline_runtime(config, **known).mps


def _refusals(config: PipelineConfig, **known: Any) -> list[str]:
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config, **known)
    return [problem.message for problem in refusal.value.problems]


def _shared_and_lone(**settings: Any) -> PipelineConfig:
    return chain(
        stage("a", gpu=0, **BOUND), stage("b", gpu=0, **BOUND), stage("c", gpu=1), **settings
    )


def test_without_a_device_table_clients_are_planned_per_gpu_id() -> None:
    decision = _decide(_shared_and_lone(mps="auto"), environ={"TMPDIR": "/t", "USER": "ann"})
    assert decision.decision == "on"
    assert [(card.card, card.enabled, card.reason) for card in decision.cards] == [
        ("gpu0", True, "2 processes share the card; the device is not known yet"),
        ("gpu1", False, "one process uses the card, so there is nothing to share"),
    ]
    assert decision.reason.startswith("GPU 0: 2 processes share the card; the device is not")
    client = decision.environment["a"]
    assert client["CUDA_MPS_PIPE_DIRECTORY"] == "/t/omnipipe-mps-ann/gpu0/pipe"
    assert client["CUDA_VISIBLE_DEVICES"] == "0"


def test_on_names_every_card_it_cannot_serve_even_when_another_could() -> None:
    devices = DeviceTable({0: Device("GPU-aaaa", mig=True), 1: CARD_1})
    said = _refusals(_shared_and_lone(mps="on"), devices=devices)
    assert said == [
        "mps=on but a physical GPU does not support MPS: GPU-aaaa: CUDA ordinal 0: MIG mode is "
        "enabled"
    ]


def test_on_refuses_a_card_whose_process_names_another_device() -> None:
    config = chain(stage("a", gpu=0, factory={"peer": ["cuda:3"]}), stage("b", gpu=1), mps="on")
    (said,) = _refusals(config, devices=DeviceTable({0: CARD_0, 1: CARD_1}))
    assert "physical GPU GPU-aaaa (logical GPUs [0]) is not eligible" in said
    assert "ordinal(s) [3] (stages.a.factory.peer)" in said


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (Device("GPU-a", mig=True), "MIG mode is enabled"),
        (Device("MIG-a"), "MIG-a is a MIG device"),
        (Device("GPU-a", compute_capability=(6, 1)), "compute capability 6.1 is below 7.0"),
    ],
    ids=["mig mode", "mig slice", "old"],
)
def test_auto_leaves_out_a_card_that_has_no_mps_and_says_why(device: Device, why: str) -> None:
    runtime = prepare_pipeline_runtime(
        _shared_and_lone(mps="auto"), devices=DeviceTable({0: device, 1: CARD_1})
    )
    assert runtime.mps.decision == "off"
    (warning,) = runtime.warnings
    assert warning.endswith(why)
    assert why in runtime.mps.reason


def test_two_gpu_ids_of_one_physical_card_share_it() -> None:
    config = chain(stage("a", gpu=0), stage("b", gpu=1), mps="auto")
    decision = _decide(config, devices=DeviceTable({0: CARD_0, 1: CARD_0}))
    (card,) = decision.enabled_cards
    assert (card.gpu_ids, card.clients) == ((0, 1), ("a", "b"))


def test_processes_that_cannot_attach_are_named_with_the_reason() -> None:
    config = chain(
        stage("front"),
        engine("llm", gpu=(0, 1), tp_size=2),
        stage("render", gpu=2, allow_child_processes=True, runtime_gpu_ids=(2, 3)),
        mps="auto",
    )
    decision = _decide(config)
    assert decision.refused == {
        "front": "runs on the CPU only",
        "llm_tp0": "is a tensor-parallel rank, which uses its GPU alone",
        "llm_tp1": "is a tensor-parallel rank, which uses its GPU alone",
        "render": "uses several GPUs [2, 3]",
    }
    assert decision.reason == (
        "no process is eligible for MPS (TP and CPU-only processes cannot attach)"
    )


def test_a_state_directory_too_long_for_sockets_is_refused() -> None:
    environ = {"OMNI_MPS_STATE_ROOT": "/" + "d" * 100}
    (said,) = _refusals(_shared_and_lone(mps="auto"), environ=environ)
    assert "at most 107" in said


def test_the_state_root_follows_the_environment() -> None:
    assert state_root({}) == "/tmp/omnipipe-mps-user"
    assert state_root({"TMPDIR": "/scratch/", "LOGNAME": "bo"}) == "/scratch/omnipipe-mps-bo"
    assert state_root({"OMNI_MPS_STATE_ROOT": "/mps/"}) == "/mps"


def test_tokens_are_each_clients_own() -> None:
    runtime = prepare_pipeline_runtime(_shared_and_lone(mps="on"), run_id="7f")
    tokens = [it["OMNI_MPS_CLIENT_TOKEN"] for it in runtime.mps.environment.values()]
    assert tokens == ["7f/a", "7f/b", "7f/c"]


def test_a_quota_goes_with_the_decision() -> None:
    quota = {"active_thread_percentage": 40, "pinned_memory": "2GiB"}
    decision = _decide(_shared_and_lone(mps="auto", mps_quota=quota))
    assert decision.quota.active_thread_percentage == 40
    assert decision.quota.pinned_memory == 2 << 30


def test_a_quota_that_limits_nobody_is_refused() -> None:
    (said,) = _refusals(_shared_and_lone(mps_quota={"active_thread_percentage": 40}))
    assert said == "limits nothing while mps is off; use mps: auto or on"


def test_a_quota_below_what_a_stage_reserves_is_refused() -> None:
    config = chain(
        stage("a", gpu=0, total_reserve_bytes=3 << 30),
        stage("b", gpu=0, total_reserve_bytes=1 << 30),
        mps="auto",
        mps_quota={"pinned_memory": "2GiB"},
    )
    (said,) = _refusals(config)
    assert "stage 'a' reserves 3.00GiB" in said


@pytest.mark.parametrize(
    "quota",
    [
        {"active_thread_percentage": 0},
        {"active_thread_percentage": 101},
        {"pinned_memory": 1024},
        {"threads": 40},
    ],
    ids=["no threads", "more than all", "below a mebibyte", "an unknown key"],
)
def test_a_quota_that_no_daemon_takes_is_refused(quota: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="mps_quota"):
        _shared_and_lone(mps="on", mps_quota=quota)
