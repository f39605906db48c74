"""The towers give transformers' embeddings, and equal media are encoded once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from omni_models.qwen3_omni.encoders.batch import Item, MediaEncoder
from omni_models.qwen3_omni.encoders.cache import EmbeddingCache
from omni_models.qwen3_omni.encoders.stage import (
    EncoderSettings,
    build_audio_encoder,
    build_image_encoder,
)
from omni_runtime.scheduler import NewRequest, RequestError, Result
from omni_runtime.simple_scheduler import SimpleScheduler
from omni_wire.errors import StageFailed
from omni_wire.messages import Payload
from tests.support import media
from tests.support.oracle import Oracle
from tests.support.prompts import VIDEO_PIXELS
from tests.support.schedulers import NotingOutbox
from tests.support.stage_events import key, payload

TOLERANCE = 1e-5


def image_payload(oracle: Oracle, name: str, images: Sequence[Any], videos: Sequence[Any]) -> Any:
    """Return a payload as preprocessing makes it, and the embeddings transformers would give."""
    inputs: dict[str, Any] = {}
    expected: dict[str, torch.Tensor] = {}
    tower = oracle.model.thinker.visual
    kinds: list[tuple[str, str, Any]] = []
    if images:
        kinds.append(("image", "pixel_values", oracle.processor.image_processor(images=images)))
    if videos:
        frames = [torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos]
        processor = oracle.processor.video_processor
        made = processor(videos=frames, size=VIDEO_PIXELS, cap_pixels_per_frame=False)
        kinds.append(("video", "pixel_values_videos", made))
    for kind, pixels, made in kinds:
        values = torch.as_tensor(np.asarray(made[pixels]))
        grids = torch.as_tensor(np.asarray(made[f"{kind}_grid_thw"]))
        with torch.no_grad():
            found = tower(values, grid_thw=grids)
        expected[kind] = torch.cat([found.pooler_output, *found.deepstack_features], -1)
        inputs |= {pixels: values.numpy(), f"{kind}_grid_thw": grids.numpy()}
        media_items = images if kind == "image" else videos
        inputs[f"{kind}_hashes"] = [str(hash(item.tobytes())) for item in media_items]
    return payload(name, data={"encoder_inputs": {"image_encoder": inputs}}), expected


def audio_payload(oracle: Oracle, name: str, sounds: Sequence[Any]) -> Any:
    made = oracle.processor.feature_extractor(
        list(sounds),
        sampling_rate=16000,
        padding=True,
        truncation=False,
        return_attention_mask=True,
        return_tensors="pt",
    )
    mask = made["attention_mask"]
    with torch.no_grad():
        found = oracle.model.thinker.get_audio_features(made["input_features"], mask)
    lengths = mask.sum(-1)
    parts = [row[:, :length] for row, length in zip(made["input_features"], lengths, strict=True)]
    inputs = {
        "input_features": torch.cat(parts, -1).numpy(),
        "lengths": lengths.numpy(),
        "hashes": [f"{len(sounds)}-{hash(sound.tobytes())}" for sound in sounds],
    }
    data = {"encoder_inputs": {"audio_encoder": inputs}}
    return payload(name, data=data), {"audio": found.last_hidden_state}


def run(scheduler: SimpleScheduler, payloads: Sequence[Payload]) -> NotingOutbox:
    """Give payloads to a stage at once and return what it puts out."""
    outbox = NotingOutbox()
    for sent in payloads:
        scheduler.inbox.put(NewRequest(sent))
    thread = threading.Thread(target=scheduler.run, args=(outbox,))
    thread.start()
    ends = (Result, RequestError)
    outbox.wait_for(lambda: sum(isinstance(m, ends) for m in outbox.messages) == len(payloads))
    scheduler.stop()
    thread.join()
    return outbox


def embeddings(outbox: NotingOutbox, name: str) -> Any:
    (data,) = (result.data for result in outbox.of(Result) if result.key == key(name))
    assert isinstance(data, dict)
    return data["embeddings"]


def test_pictures_and_videos_of_all_sizes_together(oracle: Oracle) -> None:
    settings = EncoderSettings(str(oracle.checkpoint), dtype="float32")
    requests = {
        "a": ([media.picture()], []),
        "b": ([media.picture(64, 160, 9), media.picture(320, 32, 4)], [media.video(4)]),
        "c": ([], [media.video(6, 64, 64), media.video(2, 96, 128)]),
    }
    made = {name: image_payload(oracle, name, *items) for name, items in requests.items()}
    outbox = run(build_image_encoder(settings), [sent for sent, _ in made.values()])
    for name, (_, expected) in made.items():
        got = embeddings(outbox, name)
        assert got.keys() == expected.keys()
        for kind, rows in expected.items():
            assert got[kind].shape == rows.shape
            assert ((got[kind] - rows).abs() / (1 + rows.abs())).max() <= TOLERANCE


def test_sounds_of_all_lengths_together(oracle: Oracle) -> None:
    settings = EncoderSettings(str(oracle.checkpoint), dtype="float32")
    lengths = {"a": [1.0], "b": [0.3], "c": [0.2, 0.7], "d": [0.4, 3.3, 8.0, 8.5]}
    made = {
        name: audio_payload(oracle, name, [media.sound(seconds) for seconds in seconds_of])
        for name, seconds_of in lengths.items()
    }
    outbox = run(build_audio_encoder(settings), [sent for sent, _ in made.values()])
    for name, (_, expected) in made.items():
        got = embeddings(outbox, name)
        assert got["audio"].shape == expected["audio"].shape
        assert (got["audio"] - expected["audio"]).abs().max() <= TOLERANCE


def test_a_malformed_payload_fails_alone(oracle: Oracle) -> None:
    settings = EncoderSettings(str(oracle.checkpoint), dtype="float32")
    good, _ = image_payload(oracle, "a", [media.picture()], [])
    wrong = {"pixel_values": np.zeros((24, 7), np.float32), "image_grid_thw": np.array([[1, 4, 6]])}
    inputs = {"image_encoder": {**wrong, "image_hashes": ["x"]}}
    bad = replace(good, key=key("b"), data={"encoder_inputs": inputs})
    odd = replace(good, key=key("c"), data={"encoder_inputs": {}})
    outbox = run(build_image_encoder(settings), [bad, good, odd])
    assert {failed.key for failed in outbox.of(RequestError)} == {key("b"), key("c")}
    assert all(isinstance(failed.error, StageFailed) for failed in outbox.of(RequestError))
    assert [result.key for result in outbox.of(Result)] == [key("a")]


class CountingTower:
    """Encodes a number to two rows that hold it."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def read(self, data: Any) -> list[Item[int]]:
        return [Item("image", f"digest {number}", number, 1) for number in data["numbers"]]

    def encode(self, numbers: Sequence[int]) -> list[torch.Tensor]:
        self.calls.append(list(numbers))
        return list(torch.tensor(numbers).repeat_interleave(2)[:, None].split(2))


def encoder(tower: CountingTower, entries: int = 9, cost: int = 9) -> MediaEncoder[int]:
    cache = EmbeddingCache(entries, 1 << 20)
    return MediaEncoder(tower.read, tower.encode, cache, cost)


def numbers(*lists: list[int]) -> list[Payload]:
    return [payload(str(n), data={"numbers": items}) for n, items in enumerate(lists)]


def rows(outcome: Payload | Exception) -> list[int]:
    assert isinstance(outcome, Payload)
    data: Any = outcome.data
    return [int(value) for value in data["embeddings"]["image"].flatten()]


def test_equal_media_of_a_batch_are_encoded_once() -> None:
    tower = CountingTower()
    outcomes = encoder(tower)(numbers([1, 2, 1], [2, 3]))
    assert tower.calls == [[1, 2, 3]]
    assert [rows(outcome) for outcome in outcomes] == [[1, 1, 2, 2, 1, 1], [2, 2, 3, 3]]


def test_media_seen_lately_are_not_encoded_again() -> None:
    tower = CountingTower()
    encode = encoder(tower, entries=2)
    for items in ([1], [2], [1], [3], [1], [2]):
        (outcome,) = encode(numbers(items))
        assert rows(outcome) == [items[0], items[0]]
    assert tower.calls == [[1], [2], [3], [2]]


def test_a_batch_is_cut_where_it_would_cost_too_much() -> None:
    tower = CountingTower()
    encoder(tower, cost=2)(numbers([1, 2, 3], [4, 5]))
    assert tower.calls == [[1, 2], [3, 4], [5]]


@pytest.mark.parametrize(("entries", "size"), [(0, 1 << 20), (9, 8)])
def test_a_cache_keeps_within_its_bounds(entries: int, size: int) -> None:
    cache = EmbeddingCache(entries, size)
    for number in range(4):
        cache.put(str(number), torch.zeros(4))
        assert cache.nbytes <= size
        assert len(cache) <= entries
