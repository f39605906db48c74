"""The vocoder gives the same sound in pieces as at once, and the same as transformers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder
from omni_models.qwen3_omni.code2wav.codec import Codec
from omni_models.qwen3_omni.code2wav.stage import load_codec
from tests.support.oracle import Oracle

FRAMES = 120
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def codec(oracle: Oracle) -> Codec:
    return load_codec(CheckpointFolder.open(str(oracle.checkpoint)), torch.device("cpu"), "float32")


@pytest.fixture(scope="module")
def codes(codec: Codec) -> torch.Tensor:
    """Frames of three streams, `[streams, groups, frames]`."""
    config = codec.config
    shape = (3, config.groups, FRAMES)
    return torch.randint(config.codebook_size, shape, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def whole(oracle: Oracle, codes: torch.Tensor) -> torch.Tensor:
    """What transformers makes of them at once."""
    with torch.no_grad():
        sound: torch.Tensor = oracle.model.code2wav(codes).squeeze(1)
    return sound


def decoded(codec: Codec, codes: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    states, slots, before, pieces = codec.states(4), [3, 0, 2][: len(codes)], 0, []
    for size in sizes:
        history = states.step(slots, [before] * len(codes))
        pieces.append(codec.decode(codes[..., before : before + size], history))
        before += size
    return torch.cat(pieces, -1)


@st.composite
def splits(draw: st.DrawFn) -> list[int]:
    sizes: list[int] = []
    while (left := FRAMES - sum(sizes)) > 0:
        sizes.append(min(left, draw(st.sampled_from([1, 2, 3, 8, 13, 70, 71, 72, 73, 100]))))
    return sizes


@given(sizes=splits())
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_split_gives_the_sound_of_transformers(
    codec: Codec, codes: torch.Tensor, whole: torch.Tensor, sizes: list[int]
) -> None:
    sound = decoded(codec, codes[:1], sizes)
    assert sound.shape == (1, codec.config.samples(FRAMES))
    assert (sound - whole[:1]).abs().max() <= TOLERANCE
    assert torch.equal(sound, decoded(codec, codes[:1], sizes))


def test_streams_decoded_together_do_not_touch_each_other(
    codec: Codec, codes: torch.Tensor, whole: torch.Tensor
) -> None:
    sound = decoded(codec, codes, [1, 2, 4, 8, 30, 75])
    assert (sound - whole).abs().max() <= TOLERANCE


def test_streams_of_different_age_share_a_step(
    codec: Codec, codes: torch.Tensor, whole: torch.Tensor
) -> None:
    states, before = codec.states(2), [0, 0]
    pieces: list[list[torch.Tensor]] = [[], []]
    for streams, size in [([0], 90), ([1], 3), ([0, 1], 5), ([1], 1), ([0, 1], 20), ([1], 60)]:
        window = torch.stack([codes[s, :, before[s] : before[s] + size] for s in streams])
        sound = codec.decode(window, states.step(streams, [before[s] for s in streams]))
        for stream, piece in zip(streams, sound, strict=True):
            pieces[stream].append(piece)
            before[stream] += size
    for stream in (0, 1):
        joined = torch.cat(pieces[stream])
        assert len(joined) == codec.config.samples(before[stream])
        assert (joined - whole[stream, : len(joined)]).abs().max() <= TOLERANCE


def test_a_slot_used_again_remembers_nothing(codec: Codec, codes: torch.Tensor) -> None:
    states = codec.states(1)
    first = codec.decode(codes[:1, :, :20], states.step([0], [0]))
    codec.decode(codes[1:2], states.step([0], [0]))
    assert torch.equal(codec.decode(codes[:1, :, :20], states.step([0], [0])), first)


def test_published_shape_loses_555_samples(codec: Codec) -> None:
    assert codec.config.samples_per_frame == 1920
    assert codec.config.lost_samples == 555
    assert codec.config.samples(0) == 0
