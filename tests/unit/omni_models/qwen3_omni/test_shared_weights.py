"""The audit of what may be shared, for the stages that need no engine: same bits, same answers.

`tests/integration/qwen3_omni/test_shared_weights.py` audits the engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from omni_config.registry import Registry
from omni_models.catalog import registry
from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder
from omni_models.qwen3_omni.code2wav.codec import Codec
from omni_models.qwen3_omni.code2wav.stage import load_codec
from omni_models.qwen3_omni.encoders.audio import AudioConfig, AudioTower, Sound
from omni_models.qwen3_omni.encoders.vision import VisionConfig, VisionTower
from omni_runtime.weight_share.offer import offered_weights
from omni_runtime.weight_share.role import Kind, WeightShareRole
from omni_runtime.weight_share.share import WeightShare
from tests.support.shared_stages import tensor_digests

AUDITED = {"Qwen3OmniMoeForConditionalGeneration"}
CPU = torch.device("cpu")
Load = Callable[[CheckpointFolder], nn.Module]


def codec(folder: CheckpointFolder) -> Codec:
    return load_codec(folder, CPU, "float32")


def vision_tower(folder: CheckpointFolder) -> nn.Module:
    with torch.device("meta"):
        config = VisionConfig.parse(folder.config["thinker_config"]["vision_config"])
        tower = VisionTower(config)
    return folder.load(tower, "thinker.visual.", CPU, torch.float32)


def audio_tower(folder: CheckpointFolder) -> nn.Module:
    with torch.device("meta"):
        tower = AudioTower(AudioConfig.parse(folder.config["thinker_config"]["audio_config"]))
    return folder.load(tower, "thinker.audio_tower.", CPU, torch.float32)


def sound(codec: Any) -> torch.Tensor:
    config = codec.config
    codes = torch.arange(config.groups * 30).reshape(1, config.groups, 30) % config.codebook_size
    samples: torch.Tensor = codec.decode(codes, codec.states(1).step([0], [0]))
    return samples


def seen(tower: Any) -> torch.Tensor:
    config = tower.config
    patches = torch.linspace(-1, 1, 16 * config.patch_values).reshape(16, -1)
    embeddings: torch.Tensor = tower.encode(patches, [(1, 4, 4)])
    return embeddings


def heard(tower: Any) -> torch.Tensor:
    features = torch.linspace(-1, 1, tower.config.bins * 120).reshape(-1, 120)
    (embeddings,) = tower.encode([Sound(features, tower.config.padded_chunk([120]))])
    return torch.as_tensor(embeddings)


STAGES: dict[str, tuple[Load, Callable[[Any], torch.Tensor]]] = {
    "code2wav": (codec, sound),
    "image_encoder": (vision_tower, seen),
    "audio_encoder": (audio_tower, heard),
}


@contextmanager
def role(kind: Kind, store: Path) -> Iterator[None]:
    share = WeightShare(WeightShareRole(kind, store, "run", 5.0), {})
    with offered_weights("stage", share):
        yield
    SHARES.append(share)


SHARES: list[WeightShare] = []


@pytest.fixture(autouse=True)
def shares() -> Iterator[None]:
    yield
    while SHARES:
        SHARES.pop().close()


@pytest.mark.parametrize("name", STAGES)
def test_a_copy_that_attached_is_the_one_that_loaded(
    name: str, checkpoint: Path, tmp_path: Path
) -> None:
    load, answer = STAGES[name]
    folder = CheckpointFolder.open(str(checkpoint))
    alone = load(folder)
    with role("leader", tmp_path / "store"):
        leader = load(folder)
    with role("follower", tmp_path / "store"):
        follower = load(folder)
    bits, said = tensor_digests(alone), answer(alone)
    for copy in (leader, follower):
        assert tensor_digests(copy) == bits
        assert torch.equal(answer(copy), said)
        assert tensor_digests(copy) == bits, "it wrote to its weights"


def test_every_architecture_that_may_share_was_audited() -> None:
    known: Registry = registry()
    allowed = {
        architecture
        for name in known.names
        for architecture in known.by_name(name).weight_share_architectures
    }
    assert allowed == AUDITED
