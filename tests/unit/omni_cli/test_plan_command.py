"""What `omni plan` shows, and what it refuses before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import omni

pytestmark = pytest.mark.usefixtures("folder")

COLOCATED = """\
config_cls: Qwen3OmniSpeechColocatedPipelineConfig
model_path: m
stages:
  image_encoder: {gpu_memory_fraction: 0.02}
  audio_encoder: {gpu_memory_fraction: 0.02}
  thinker: {gpu_memory_fraction: 0.78}
  talker_ar: {gpu_memory_fraction: 0.10}
"""


def test_speech_runs_as_seven_processes_on_two_gpus() -> None:
    shown = omni("plan", "--model-path", "m/m", "--variant", "speech")
    assert shown.stdout == (
        "Qwen3OmniSpeechPipelineConfig  m/m\n"
        "\n"
        "process        device  stages\n"
        "preprocessing  CPU     preprocessing\n"
        "image_encoder  GPU 0   image_encoder\n"
        "audio_encoder  GPU 0   audio_encoder\n"
        "thinker        GPU 0   thinker\n"
        "decode         CPU     decode\n"
        "talker_ar      GPU 1   talker_ar\n"
        "code2wav       GPU 0   code2wav\n"
        "\n"
        "GPU 0  █░░░░░░░░░░░░░░░░░░░  0.02 of 1.00\n"
        "       image_encoder, audio_encoder, thinker, code2wav 0.02\n"
        "       missing gpu_memory_fraction: audio_encoder, image_encoder, thinker\n"
        "GPU 1  ░░░░░░░░░░░░░░░░░░░░  0.00 of 1.00\n"
        "       talker_ar\n"
        "       missing gpu_memory_fraction: talker_ar\n"
        "\n"
        "replicas      none\n"
        "MPS           off\n"
        "weight share  off\n"
        "in flight     no limit\n"
    )


def test_what_resolves_but_cannot_run_is_refused() -> None:
    words = ["--model-path", "m/m", "--variant", "speech-colocated"]
    assert omni("config", "resolve", *words).status == 0
    refused = omni("plan", *words)
    assert refused.status == 2
    assert refused.stdout == ""
    assert (
        "Qwen colocated speech requires gpu_memory_fraction or engine.kv_cache_bytes for "
        "['audio_encoder', 'image_encoder', 'talker_ar', 'thinker']"
    ) in refused.stderr


def test_the_plan_is_data_for_programs() -> None:
    Path("one.yaml").write_text(COLOCATED)
    plan = json.loads(omni("plan", "-f", "one.yaml", "-o", "json").stdout)
    assert plan["groups"][-1] == {
        "name": "talker_ar",
        "gpu_id": 0,
        "stage_names": ["talker_ar", "code2wav"],
    }
    assert plan["gpus"]["0"]["total_gpu_memory_fraction"] == 0.94
    assert plan["gpus"]["0"]["missing_fraction_stage_names"] == []


def test_decisions_come_with_their_reasons() -> None:
    Path("one.yaml").write_text(COLOCATED)
    shown = omni("plan", "-f", "one.yaml", "--mps", "auto").stdout
    assert "MPS           on: " in shown
    assert "              not preprocessing: runs on the CPU only\n" in shown


def test_replicas_and_ranks_are_shown() -> None:
    words = ["--variant", "speech", "--model-path", "m/m", "--thinker.tp_size", "2"]
    words += ["--thinker.gpu", "0,2", "--processes.talker_ar.num_replicas", "2"]
    words += ["--processes.talker_ar.replica_devices", "1,3"]
    shown = omni("plan", *words).stdout
    assert "thinker_tp1    GPU 2   thinker  (rank 1 of 2)\n" in shown
    assert "talker_ar@r1   GPU 3   talker_ar@r1\n" in shown
    assert "replicas      talker_ar x2\n" in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--devices", "1"], "GPU id 1 out of range", id="too few devices"),
        pytest.param(
            ["--gpu-memory", "8GiB", "--thinker.engine.kv_cache_bytes", "9GiB"],
            "exceed physical memory",
            id="too little memory",
        ),
        pytest.param(["--gpu-memory", "80GB"], "--gpu-memory must be", id="not a size"),
        pytest.param(["--devices", "-1"], "--devices", id="not a count"),
    ],
)
def test_a_machine_can_be_described_and_is_checked(words: list[str], says: str) -> None:
    refused = omni("plan", "--variant", "speech", "--model-path", "m/m", *words)
    assert refused.status == 2
    assert says in refused.stderr


def test_a_described_machine_that_suffices_changes_nothing() -> None:
    words = ["plan", "--variant", "speech", "--model-path", "m/m"]
    assert omni(*words, "--devices", "2", "--gpu-memory", "80GiB") == omni(*words)


def test_planning_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    base = folder / "run"
    assert omni("plan", "-f", "tts.yaml", "--endpoints.base_path", str(base)).status == 0
    assert sorted(folder.rglob("*")) == before
