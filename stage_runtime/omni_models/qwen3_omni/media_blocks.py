"""Where media stand in a prompt, and the rotary positions that follow from it. Pure numpy.

A prompt holds one placeholder token per embedding row. Pictures and videos are laid out on three
axes (time, height, width), sound on one; a heard video interleaves its frames with its sound by
time. Positions follow transformers' `get_rope_index`, with the fraction of a position dropped:
fractions occur only where a video is not sampled at a whole number of positions per grid step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from omni_wire.errors import InvalidRequest

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


class MediaConfig(Protocol):
    """What is read of a checkpoint's thinker or talker configuration."""

    audio_token_id: int
    image_token_id: int
    video_token_id: int
    audio_start_token_id: int
    vision_start_token_id: int
    position_id_per_seconds: int


@dataclass(frozen=True, slots=True)
class MediaLayout:
    """How a model lays media out.

    Attributes:
        tokens: placeholder token of each kind.
        merge: patches merged along each side of a picture.
        audio_window: half a chunk of mel frames in the audio encoder.
    """

    tokens: Mapping[str, int]
    vision_start: int
    audio_start: int
    positions_per_second: int
    merge: int
    audio_window: int

    @classmethod
    def of(cls, config: MediaConfig, merge: int, audio_window: int) -> MediaLayout:
        """Read a thinker's or talker's configuration."""
        return cls(
            tokens={
                "image": config.image_token_id,
                "video": config.video_token_id,
                "audio": config.audio_token_id,
            },
            vision_start=config.vision_start_token_id,
            audio_start=config.audio_start_token_id,
            positions_per_second=config.position_id_per_seconds,
            merge=merge,
            audio_window=audio_window,
        )


@dataclass(frozen=True, slots=True)
class Media:
    """Sizes of the media of a prompt, in prompt order within a kind.

    Attributes:
        images, videos: patch grids [items, 3], as time, height, width.
        seconds_per_grid: time between grid steps of each video.
        audios: mel frames of each sound.
        hashes: identity of each item, by kind, as hexadecimal digits.
    """

    images: Ints
    videos: Ints
    seconds_per_grid: Floats
    audios: Ints
    hashes: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Media:
        """Read the `media` part of a payload."""
        image, video = tree.get("image", {}), tree.get("video", {})
        audio = tree.get("audio", {})
        return cls(
            images=_grid(image.get("grid_thw")),
            videos=_grid(video.get("grid_thw")),
            seconds_per_grid=np.asarray(video.get("seconds_per_grid", ()), np.float64),
            audios=np.asarray(audio.get("lengths", ()), np.int64),
            hashes={kind: tuple(tree[kind]["hashes"]) for kind in _KINDS if kind in tree},
        )

    def rows(self, layout: MediaLayout) -> dict[str, Ints]:
        """Return how many embedding rows each item has, by kind."""
        area = layout.merge**2
        return {
            "image": self.images.prod(-1) // area,
            "video": self.videos.prod(-1) // area,
            "audio": audio_rows(self.audios, layout.audio_window),
        }


@dataclass(frozen=True, slots=True)
class Block:
    """Media standing together in a prompt: one item, or a video with its sound.

    Attributes:
        first: position of the first placeholder.
        items: kind and index within the kind; a heard video comes as video, then audio.
    """

    first: int
    length: int
    items: tuple[tuple[str, int], ...]


_KINDS = ("image", "video", "audio")


def audio_rows(mel_frames: Ints, window: int) -> Ints:
    """Return the embedding rows of sounds: three halvings of each chunk of `2 * window` frames."""
    chunk = 2 * window
    rest = mel_frames % chunk
    for _ in range(3):
        rest = (rest - 1) // 2 + 1
    return rest + mel_frames // chunk * 13


def media_blocks(ids: Ints, media: Media, layout: MediaLayout) -> Iterator[Block]:
    """Yield the blocks of a prompt in order.

    Raises:
        InvalidRequest: placeholders and media do not match.
    """
    rows, counts = media.rows(layout), dict.fromkeys(_KINDS, 0)
    kinds = {token: kind for kind, token in layout.tokens.items()}
    at = 0
    for at_token in np.flatnonzero(np.isin(ids, list(kinds))):
        if at_token < at:
            continue
        first = int(at_token)
        heard = first >= 2 and ids[first - 2] == layout.vision_start
        heard = heard and ids[first - 1] == layout.audio_start
        wanted = ("video", "audio") if heard else (kinds[int(ids[first])],)
        items = tuple((kind, counts[kind]) for kind in wanted)
        for kind in wanted:
            if counts[kind] >= len(rows[kind]):
                raise InvalidRequest(f"the prompt has a place for a {kind} that is not there")
            counts[kind] += 1
        length = sum(int(rows[kind][index]) for kind, index in items)
        at = first + length
        if at > len(ids):
            raise InvalidRequest(f"the prompt ends within the places of a {wanted[0]}")
        yield Block(first, length, items)
    for kind in _KINDS:
        if counts[kind] != len(rows[kind]):
            raise InvalidRequest(
                f"the prompt has places for {counts[kind]} {kind} items, {len(rows[kind])} came"
            )


def rope_positions(
    ids: Ints, media: Media, layout: MediaLayout, blocks: Sequence[Block], by_time: bool = True
) -> tuple[Ints, int]:
    """Return positions int64 [3, tokens], and what the next token's position adds to the length.

    Args:
        by_time: interleave heard videos with their sound. `generate()` does not tell its talker
            that videos are heard, so for the talker this is False, and such a video counts as text
            unless a picture or an unheard video is still to come.
    """
    parts: list[Floats] = []
    following, at = 0.0, 0
    for block in blocks if by_time else _seen_by_talker(blocks):
        text = _text(block.first - at, following)
        following += block.first - at
        grid, last = _block_positions(block, media, layout, following)
        parts += [text, grid]
        following, at = last + 1, block.first + block.length
    parts.append(_text(len(ids) - at, following))
    positions = np.floor(np.concatenate(parts, -1)).astype(np.int64)
    return positions, int(positions.max() + 1 - len(ids)) if len(ids) else 0


def _seen_by_talker(blocks: Sequence[Block]) -> Iterator[Block]:
    images = sum(block.items[0][0] == "image" for block in blocks)
    videos = sum(block.items[0][0] == "video" and len(block.items) == 1 for block in blocks)
    for block in blocks:
        heard = len(block.items) == 2
        if heard and images <= 0 and videos <= 0:
            continue
        images -= block.items[0][0] == "image"
        videos -= block.items[0][0] == "video"
        yield block


def media_spans(
    ids: Ints, blocks: Sequence[Block], layout: MediaLayout
) -> dict[tuple[str, int], tuple[tuple[int, int], ...]]:
    """Return the runs of placeholders (first, last) of each item; a heard video has several."""
    spans: dict[tuple[str, int], tuple[tuple[int, int], ...]] = {}
    for block in blocks:
        inside = ids[block.first : block.first + block.length]
        for kind, index in block.items:
            at = np.flatnonzero(inside == layout.tokens[kind]) + block.first
            runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
            spans[kind, index] = tuple((int(run[0]), int(run[-1])) for run in runs if len(run))
    return spans


def _text(count: int, following: float) -> Floats:
    return np.broadcast_to(np.arange(count) + following, (3, count)).astype(np.float64)


def _block_positions(
    block: Block, media: Media, layout: MediaLayout, start: float
) -> tuple[Floats, float]:
    """Return positions [3, length] of a block and the highest one its follower counts from."""
    parts = [_item_positions(kind, index, media, layout) + start for kind, index in block.items]
    if len(parts) == 1:
        return parts[0], float(parts[0].max(initial=start - 1))
    video, audio = parts
    order = _merged_by_time(video[0], audio[0])
    merged = np.concatenate([video, audio], -1)[:, order]
    # transformers counts on from whichever of the two lasts longer, and from its rest alone.
    tail = order[-1] >= video.shape[1]
    rest = len(order) - 1
    while rest > 0 and (order[rest - 1] >= video.shape[1]) == tail:
        rest -= 1
    return merged, float(merged[:, rest:].max())


def _merged_by_time(video: Floats, audio: Floats) -> Ints:
    """Return indices into video followed by audio, by time; a video row goes first at a tie."""
    order = np.argsort(np.concatenate([video, audio]), kind="stable")
    return order.astype(np.int64)


def _item_positions(kind: str, index: int, media: Media, layout: MediaLayout) -> Floats:
    if kind == "audio":
        return _text(int(audio_rows(media.audios[index], layout.audio_window)), 0.0)
    grid = media.images[index] if kind == "image" else media.videos[index]
    seconds = 1.0 if kind == "image" else float(np.float32(media.seconds_per_grid[index]))
    steps, height, width = int(grid[0]), int(grid[1]) // layout.merge, int(grid[2]) // layout.merge
    time = np.arange(steps) * seconds * layout.positions_per_second
    axes = np.meshgrid(time, np.arange(height), np.arange(width), indexing="ij")
    return np.stack([axis.ravel() for axis in axes]).astype(np.float64)


def _grid(grid: object) -> Ints:
    if grid is None:
        return np.zeros((0, 3), np.int64)
    return np.asarray(grid, np.int64).reshape(-1, 3)
