"""Writing the checkpoint's folder, with the files that the published one has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from safetensors.numpy import save_file

from omni_models.qwen3_omni.layout import Shape, published_layout
from omni_models.qwen3_omni.tiny.config import tiny_config
from omni_models.qwen3_omni.tiny.tokenizer import (
    NAMED_TOKENS,
    SPECIAL_TOKENS,
    TEXT_TOKENS,
    Vocabulary,
    tiny_vocabulary,
)
from omni_models.qwen3_omni.tiny.weights import random_weights

SHARD_BYTES = 1 << 20
"""Small enough that tensors of one stage lie in several files, as in the real checkpoint."""

UNSPOKEN_SCALE = 0.1
"""Scale of the output weights of tokens that never win, whatever the hidden state."""

_FLOAT32_BYTES = 4


def write_tiny_checkpoint(folder: Path, seed: int = 7) -> None:
    """Write a complete float32 checkpoint of about 4 MB; the same bytes for the same seed.

    Args:
        folder: made if missing; files of the same names are replaced.
        seed: what all weights follow from.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = tiny_vocabulary()
    config = tiny_config(vocabulary)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", _generation(vocabulary))
    _write_tokenizer(folder, vocabulary)
    _write_json(folder / "preprocessor_config.json", _PREPROCESSOR)
    template = files(__package__).joinpath("chat_template.jinja").read_text(encoding="utf-8")
    _write_json(folder / "chat_template.json", {"chat_template": template})
    _write_weights(folder, published_layout(config), seed, _unspoken(vocabulary))


def _generation(vocabulary: Vocabulary) -> dict[str, object]:
    end = vocabulary.id_of("<|endoftext|>")
    return {
        "do_sample": False,
        "eos_token_id": [vocabulary.id_of("<|im_end|>"), end],
        "pad_token_id": end,
    }


def _write_tokenizer(folder: Path, vocabulary: Vocabulary) -> None:
    _write_json(folder / "vocab.json", vocabulary.pieces, indent=None)
    merges = "".join(f"{left} {right}\n" for left, right in vocabulary.merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "processor_class": "Qwen3OmniMoeProcessor",
            "model_max_length": 131072,
            "add_prefix_space": False,
            "add_bos_token": False,
            "bos_token": None,
            "unk_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "errors": "replace",
            "split_special_tokens": False,
            "clean_up_tokenization_spaces": False,
            "extra_special_tokens": NAMED_TOKENS,
            "added_tokens_decoder": {
                str(vocabulary.id_of(token)): _added(token) for token in SPECIAL_TOKENS
            },
        },
    )


def _added(token: str) -> dict[str, object]:
    return {
        "content": token,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": token not in TEXT_TOKENS,
    }


_PREPROCESSOR = {
    "processor_class": "Qwen3OmniMoeProcessor",
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 128,
    "sampling_rate": 16000,
    "hop_length": 160,
    "n_fft": 400,
    "chunk_length": 300,
    "n_samples": 4800000,
    "nb_max_frames": 30000,
    "padding_side": "right",
    "padding_value": 0.0,
    "dither": 0.0,
    "return_attention_mask": True,
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "min_pixels": 3136,
    "max_pixels": 12845056,
}


def _unspoken(vocabulary: Vocabulary) -> tuple[int, ...]:
    """Ids that a trained model never answers with: every special token but the end of a turn."""
    specials = (token for token in SPECIAL_TOKENS if token not in TEXT_TOKENS)
    return tuple(vocabulary.id_of(token) for token in specials if token != "<|im_end|>")


def _write_weights(
    folder: Path, layout: Mapping[str, Shape], seed: int, unspoken: Sequence[int]
) -> None:
    shards = list(_shards(layout))
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: random_weights(name, layout[name], seed) for name in names}
        if "thinker.lm_head.weight" in tensors:
            tensors["thinker.lm_head.weight"][[*unspoken]] *= UNSPOKEN_SCALE
        save_file(tensors, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    size = sum(_bytes_of(shape) for shape in layout.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def _shards(layout: Mapping[str, Shape]) -> Iterator[list[str]]:
    """Names of the tensors of each file, in the order of the layout."""
    names: list[str] = []
    size = 0
    for name, shape in layout.items():
        if names and size + _bytes_of(shape) > SHARD_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += _bytes_of(shape)
    yield names


def _bytes_of(shape: Shape) -> int:
    count = _FLOAT32_BYTES
    for length in shape:
        count *= length
    return count


def _write_json(path: Path, content: object, indent: int | None = 2) -> None:
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
