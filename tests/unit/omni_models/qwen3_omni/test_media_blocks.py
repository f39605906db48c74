"""Where media stand: positions equal transformers' own, for prompts of every mixture."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoePreTrainedModelForConditionalGeneration as Reference,
)

from omni_models.qwen3_omni.media_blocks import (
    Media,
    MediaLayout,
    audio_rows,
    media_blocks,
    media_spans,
    rope_positions,
)
from omni_wire.errors import InvalidRequest

CONFIG = SimpleNamespace(
    image_token_id=101,
    video_token_id=102,
    audio_token_id=103,
    vision_start_token_id=110,
    audio_start_token_id=112,
    position_id_per_seconds=13,
    audio_config=SimpleNamespace(n_window=50),
)
VISION_END, AUDIO_END = 111, 113
LAYOUT = MediaLayout.of(CONFIG, merge=2, audio_window=50)


class Judge:
    """As much of transformers' model as counts positions."""

    spatial_merge_size = 2
    config = CONFIG
    get_llm_pos_ids_for_vision = Reference.get_llm_pos_ids_for_vision

    def positions(self, ids: list[int], tree: dict[str, Any], heard: bool) -> Any:
        def tensor(kind: str, name: str) -> Any:
            return torch.as_tensor(tree[kind][name]) if kind in tree else None

        found, delta = Reference.get_rope_index(
            self,
            torch.tensor([ids]),
            tensor("image", "grid_thw"),
            tensor("video", "grid_thw"),
            torch.ones(1, len(ids)),
            heard,
            tensor("audio", "lengths"),
            tensor("video", "seconds_per_grid"),
        )
        return found[:, 0].long().numpy(), int(delta)


class Prompt:
    """Builds a prompt part by part."""

    def __init__(self, heard: bool) -> None:
        self.ids: list[int] = []
        self.tree: dict[str, Any] = {}
        self.heard = heard

    def text(self, count: int) -> None:
        self.ids += [7] * count

    def image(self, height: int, width: int) -> None:
        self._add("image", grid_thw=[1, height * 2, width * 2])
        self.ids += [110, *[101] * (height * width), VISION_END]

    def video(self, steps: int, height: int, width: int) -> None:
        self._add("video", grid_thw=[steps, height * 2, width * 2], seconds_per_grid=1.0)
        self.ids += [110, *[102] * (steps * height * width), VISION_END]

    def audio(self, frames: int) -> None:
        self._add("audio", lengths=frames)
        rows = int(audio_rows(np.array(frames), 50))
        self.ids += [112, *[103] * rows, AUDIO_END]

    def heard_video(self, steps: int, height: int, width: int, frames: int) -> None:
        self._add("video", grid_thw=[steps, height * 2, width * 2], seconds_per_grid=1.0)
        self._add("audio", lengths=frames)
        rows = int(audio_rows(np.array(frames), 50))
        times = [(13 * step, 102) for step in range(steps) for _ in range(height * width)]
        times += [(row, 103) for row in range(rows)]
        merged = [token for _, token in sorted(times, key=lambda it: it[0])]
        self.ids += [110, 112, *merged, AUDIO_END, VISION_END]

    def media(self) -> Media:
        for part in self.tree.values():
            part["hashes"] = [f"{i:016x}" for i in range(len(next(iter(part.values()))))]
        return Media.of(self.tree)

    def _add(self, kind: str, **values: object) -> None:
        part = self.tree.setdefault(kind, {})
        for name, value in values.items():
            part.setdefault(name, []).append(value)


def random_prompt(seed: int, heard: bool) -> Prompt:
    dice = random.Random(seed)
    prompt = Prompt(heard)
    for _ in range(dice.randint(1, 5)):
        prompt.text(dice.randint(0, 4))
        match dice.choice("ivah" if heard else "iva"):
            case "i":
                prompt.image(dice.randint(1, 4), dice.randint(1, 4))
            case "v" if not heard:
                prompt.video(dice.randint(1, 4), dice.randint(1, 3), dice.randint(1, 3))
            case "v" | "h":
                prompt.heard_video(
                    dice.randint(1, 4), dice.randint(1, 3), dice.randint(1, 3), dice.randint(9, 400)
                )
            case _:
                prompt.audio(dice.randint(9, 400))
    prompt.text(dice.randint(1, 6))
    return prompt


@pytest.mark.parametrize("heard", [False, True], ids=["unheard videos", "heard videos"])
@pytest.mark.parametrize("seed", range(12))
def test_positions_are_transformers(seed: int, heard: bool) -> None:
    prompt = random_prompt(seed, heard)
    ids, media = np.array(prompt.ids), prompt.media()
    blocks = list(media_blocks(ids, media, LAYOUT))
    positions, delta = rope_positions(ids, media, LAYOUT, blocks)
    wanted, wanted_delta = Judge().positions(prompt.ids, prompt.tree, heard)
    if "image" not in prompt.tree and "video" not in prompt.tree:
        wanted = np.broadcast_to(np.arange(len(ids)), (3, len(ids)))
    np.testing.assert_array_equal(positions, wanted)
    assert delta == wanted_delta


@pytest.mark.parametrize("seed", range(12))
def test_positions_of_the_talker_are_those_of_generate(seed: int) -> None:
    """`generate()` never tells the talker that videos are heard; its positions are the standard."""
    prompt = random_prompt(seed, heard=True)
    ids, media = np.array(prompt.ids), prompt.media()
    blocks = list(media_blocks(ids, media, LAYOUT))
    positions, _ = rope_positions(ids, media, LAYOUT, blocks, by_time=False)
    wanted, _ = Judge().positions(prompt.ids, prompt.tree, heard=False)
    np.testing.assert_array_equal(positions, wanted)


def test_spans_of_a_heard_video_are_its_runs() -> None:
    prompt = Prompt(heard=True)
    prompt.text(1)
    prompt.heard_video(2, 1, 1, 110)
    ids, media = np.array(prompt.ids), prompt.media()
    spans = media_spans(ids, list(media_blocks(ids, media, LAYOUT)), LAYOUT)
    assert set(spans) == {("video", 0), ("audio", 0)}
    assert len(spans["video", 0]) == 2
    places = [p for runs in spans.values() for first, last in runs for p in range(first, last + 1)]
    assert sorted(places) == [i for i, token in enumerate(prompt.ids) if token in (102, 103)]


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        pytest.param([7, 110, 101, 111], "ends within the places", id="cut short"),
        pytest.param([7, 7], "places for 0 image items, 1 came", id="no place"),
        pytest.param([110, *[101] * 4, 111, 110, 101, 111], "that is not there", id="two places"),
    ],
)
def test_places_that_do_not_match_are_refused(ids: list[int], problem: str) -> None:
    media = Media.of({"image": {"grid_thw": [[1, 4, 4]], "hashes": ["0" * 16]}})
    with pytest.raises(InvalidRequest, match=problem):
        list(media_blocks(np.array(ids), media, LAYOUT))
