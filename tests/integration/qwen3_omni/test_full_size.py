"""The published Qwen3-Omni-30B-A3B fits the stages and their GPUs, by names and shapes alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from omni_config.resolution.document import read_document
from omni_config.resolution.resolve import Sources, file_body, pipeline_of, resolve
from omni_models.catalog import registry
from omni_models.qwen3_omni.code2wav.codec import Codec
from omni_models.qwen3_omni.code2wav.config import CodecConfig
from omni_models.qwen3_omni.encoders.audio import AudioConfig, AudioTower
from omni_models.qwen3_omni.encoders.vision import VisionConfig, VisionTower
from omni_models.qwen3_omni.layout import published_layout
from tests.support.checkpoints import published_config
from tests.support.full_size import (
    CARD_BYTES,
    GIBIBYTE,
    PREFIXES,
    tensors_of,
    token_bytes,
    weight_bytes,
)
from tests.support.patience import PROGRAM_SECONDS

ROOT = Path(__file__).resolve().parents[3]
CONFIG = published_config()


def test_every_tensor_belongs_to_exactly_one_stage() -> None:
    for name in published_layout(CONFIG):
        owners = [stage for stage, prefixes in PREFIXES.items() if name.startswith(prefixes)]
        assert len(owners) == 1, name


@pytest.mark.parametrize("stage", ["image_encoder", "audio_encoder", "code2wav"])
def test_parameters_are_the_published_tensors(stage: str) -> None:
    thinker = CONFIG["thinker_config"]
    with torch.device("meta"):
        modules: dict[str, torch.nn.Module] = {
            "image_encoder": VisionTower(VisionConfig.parse(thinker["vision_config"])),
            "audio_encoder": AudioTower(AudioConfig.parse(thinker["audio_config"])),
            "code2wav": Codec(CodecConfig.parse(CONFIG["code2wav_config"])),
        }
    (prefix,) = PREFIXES[stage]
    shapes = {
        f"{prefix}{name}": tuple(value.shape) for name, value in modules[stage].named_parameters()
    }
    assert shapes == tensors_of(stage)


@pytest.mark.slow
def test_every_tensor_of_an_engine_stage_fills_its_part_of_one_parameter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.full_size"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize("example", ["qwen3-omni.yaml", "qwen3-omni-colocated.yaml"])
def test_weights_and_a_context_of_cache_fit_the_planned_share(example: str) -> None:
    body = file_body(read_document(str(ROOT / "examples" / example)))
    config = resolve(pipeline_of(body, registry()), Sources(body=body)).config
    caches = {
        "thinker": token_bytes(CONFIG["thinker_config"]["text_config"]),
        "talker_ar": token_bytes(CONFIG["talker_config"]["text_config"]),
    }
    for stage in PREFIXES:
        share = config.by_name[stage].gpu_memory_fraction
        assert share is not None
        # Activations and CUDA's own memory want some of it as well.
        left = share * CARD_BYTES - weight_bytes(stage) - GIBIBYTE / 4
        assert left > 0, stage
        if stage in caches:
            assert left / caches[stage] > 32_768, stage
