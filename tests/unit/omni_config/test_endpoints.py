"""Socket paths that fit, and one lock per physical card."""

from __future__ import annotations

import pytest

from omni_config.errors import PlanError
from omni_config.planning.devices import NO_DEVICES, Device, DeviceTable
from omni_config.planning.endpoints import MAX_SOCKET_PATH_BYTES, startup_lock_name
from omni_config.planning.plan import prepare_pipeline_runtime
from tests.support.pipelines import chain, stage


def _directory(name: str, base_path: str = "/run", run_id: str | None = "r1") -> str:
    config = chain(stage("a"), name=name, endpoints={"base_path": base_path})
    return prepare_pipeline_runtime(config, run_id=run_id).endpoints.run_directory


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("Qwen/Qwen3-TTS 0.6B", "/run/qwen-qwen3-tts-0-6b-r1"),
        ("../../etc", "/run/etc-r1"),
        ("$$$", "/run/pipeline-r1"),
    ],
)
def test_the_run_directory_is_named_after_the_pipeline(name: str, directory: str) -> None:
    assert _directory(name) == directory


@pytest.mark.parametrize("base_length", range(80, 98))
def test_the_name_is_cut_until_every_socket_fits(base_length: int) -> None:
    directory = _directory("long-name" * 5, base_path="/" + "b" * (base_length - 1))
    assert len(f"{directory}/a.sock") <= MAX_SOCKET_PATH_BYTES
    assert directory.endswith("r1")
    assert not directory.endswith("--r1")


def test_a_base_path_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(PlanError) as refusal:
        _directory("a", base_path="/" + "b" * 101)
    (problem,) = refusal.value.problems
    assert problem.path == "endpoints.base_path"
    assert f"holds {MAX_SOCKET_PATH_BYTES}" in problem.message


def test_a_preview_names_the_same_directory_each_time_and_another_for_another_model() -> None:
    assert _directory("a", run_id=None) == _directory("a", run_id=None)
    assert _directory("a", run_id=None) != _directory("b", run_id=None)


def test_ranks_and_copies_have_sockets_of_their_own() -> None:
    config = chain(stage("a"), processes={"a": {"num_replicas": 2}})
    addresses = prepare_pipeline_runtime(config, run_id="r1").endpoints.addresses
    directory = "/tmp/omnipipe/org-model-r1"
    assert addresses == {
        "a@r0": f"unix:{directory}/a@r0.sock",
        "a@r1": f"unix:{directory}/a@r1.sock",
    }


def test_one_card_has_one_lock_whether_named_by_uuid_or_by_number() -> None:
    by_number = startup_lock_name(
        0, DeviceTable({0: Device("GPU-3f2a")}), {"CUDA_VISIBLE_DEVICES": "4"}
    )
    by_uuid = startup_lock_name(
        1, DeviceTable({1: Device("GPU-3f2a")}), {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-3f2a"}
    )
    unseen_table = startup_lock_name(0, NO_DEVICES, {"CUDA_VISIBLE_DEVICES": "GPU-3f2a"})
    assert by_number == by_uuid == unseen_table == "omnipipe_gpu_GPU-3f2a_startup.lock"


@pytest.mark.parametrize(
    ("gpu_id", "visible", "name"),
    [
        (0, None, "omnipipe_gpu_0_startup.lock"),
        (1, "4,5", "omnipipe_gpu_5_startup.lock"),
        (0, "GPU-3f2a/0", "omnipipe_gpu_GPU-3f2a_0_startup.lock"),
    ],
)
def test_without_a_table_the_launchers_name_of_the_device_is_used(
    gpu_id: int, visible: str | None, name: str
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert startup_lock_name(gpu_id, NO_DEVICES, environ) == name
