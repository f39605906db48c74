"""The tiny checkpoint is the real one in every respect but size."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoProcessor, AutoTokenizer

from omni_models.qwen3_omni.layout import published_layout
from omni_models.qwen3_omni.tiny import write_tiny_checkpoint
from tests.support.checkpoints import (
    PUBLISHED_PARAMETERS,
    PUBLISHED_TENSORS,
    published_config,
)
from tests.support.oracle import Oracle
from tests.support.patience import PROGRAM_SECONDS
from tests.support.prompts import PROMPTS


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(folder.iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_layout_names_the_published_tensors_and_no_other() -> None:
    layout = published_layout(published_config())
    assert len(layout) == PUBLISHED_TENSORS
    assert sum(math.prod(shape) for shape in layout.values()) == PUBLISHED_PARAMETERS


def test_same_seed_gives_the_same_bytes_in_another_process(
    checkpoint: Path, tmp_path: Path
) -> None:
    command = [str(Path(sys.executable).with_name("omni")), "models", "tiny", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=PROGRAM_SECONDS)
    assert _digests(tmp_path) == _digests(checkpoint)


def test_another_seed_changes_the_weights_and_nothing_else(
    checkpoint: Path, tmp_path: Path
) -> None:
    write_tiny_checkpoint(tmp_path, seed=8)
    other, same = _digests(tmp_path), _digests(checkpoint)
    assert {name for name in same if same[name] != other[name]} == {
        name for name in same if name.endswith(".safetensors")
    }


def test_transformers_finds_every_tensor_and_misses_none(oracle: Oracle) -> None:
    _, report = type(oracle.model).from_pretrained(oracle.checkpoint, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]


def test_stages_share_weight_files_as_in_the_real_checkpoint(checkpoint: Path) -> None:
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
    stages_of = {
        file: {name.partition(".")[0] for name, at in index["weight_map"].items() if at == file}
        for file in index["weight_map"].values()
    }
    assert len(stages_of) > 2
    assert any(len(stages) > 1 for stages in stages_of.values())


def test_auto_classes_read_the_folder(checkpoint: Path) -> None:
    config = AutoConfig.from_pretrained(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    processor = AutoProcessor.from_pretrained(checkpoint)
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == config.im_end_token_id
    assert tokenizer.encode("user") == [config.user_token_id]
    assert processor.audio_token == "<|audio_pad|>"
    assert processor.image_processor.size["shortest_edge"] == 3136


def test_text_survives_the_tokenizer(checkpoint: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    text = "Größe 12 😀\n\tund <think> ß"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", PROMPTS)
def test_answers_vary(oracle: Oracle, name: str) -> None:
    answer = oracle.answer(PROMPTS[name])
    answer.require_variety()
    assert answer.wav.shape == (1920 * answer.codes.shape[1] - 555,)
    assert abs(answer.wav).max() < 1
