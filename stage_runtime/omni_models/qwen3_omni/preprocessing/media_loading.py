"""Fetching, decoding and featurising the media of requests, many at once, within bounds.

Waiting for servers costs nothing, so many items wait at once; decoding costs memory and CPU, so
only as many items as there are CPUs are decoded at once, whatever the number of requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from omni_models.media.download import Downloader
from omni_models.media.errors import InvalidMedia, MediaTimeout, MediaTooLarge
from omni_models.media.limits import Deadline, MediaLimits
from omni_models.media.pictures import decode_picture
from omni_models.media.sounds import Samples, decode_sound
from omni_models.media.sources import Inline, Local, MediaItem, Remote
from omni_models.media.videos import decode_frames, plan_video
from omni_models.qwen3_omni.preprocessing.features import Features, Patches, digest_of
from omni_models.qwen3_omni.preprocessing.wishes import VideoSettings

MAX_WAITING = 64
"""Items fetched at once, over all requests."""
FRAMES_AT_ONCE = 16
TOKENS_PER_SOUND_SECOND = 12
"""Fewer than there are, so that only hopeless sounds are refused before they are featurised."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One item, ready: patches of what is seen, samples of what is heard."""

    item: MediaItem
    patches: Patches | None = None
    samples: Samples | None = None


class TokenBudget:
    """What is left of a context for the media of one request; its threads share it."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._left = tokens
        self._lock = threading.Lock()

    def spend(self, tokens: int, where: str) -> None:
        """Take tokens for an item.

        Raises:
            MediaTooLarge: there are not that many left.
        """
        with self._lock:
            self._left -= tokens
            if self._left < 0:
                raise MediaTooLarge(
                    f"{where}: the request's media take more than the {self._tokens} tokens of the "
                    "context",
                    details={"field": where},
                )

    @property
    def tokens(self) -> int:
        """Tokens of the whole context."""
        return self._tokens


class MediaLoading:
    """Loads the media of requests.

    Args:
        features: the checkpoint's processor.
        downloader: fetches what is not in the request.
        merge: patches along each side that become one token.
    """

    def __init__(
        self, features: Features, downloader: Downloader, limits: MediaLimits, merge: int
    ) -> None:
        self._features = features
        self._downloader = downloader
        self._limits = limits
        self._merge = merge
        self._pool = ThreadPoolExecutor(MAX_WAITING, "media")
        self._decoding = threading.Semaphore(os.cpu_count() or 1)

    def load(
        self, items: Sequence[MediaItem], settings: VideoSettings, budget: TokenBudget
    ) -> list[Loaded]:
        """Return all items of a request, in order.

        Raises:
            ServiceError: of the first item that fails; the others are given up.
        """
        deadline = Deadline(self._limits.timeout_seconds)
        futures = [
            self._pool.submit(self._load, item, settings, budget, deadline) for item in items
        ]
        try:
            return [
                self._result(future, item, deadline)
                for future, item in zip(futures, items, strict=True)
            ]
        finally:
            for future in futures:
                future.cancel()

    def _result(self, future: Future[Loaded], item: MediaItem, deadline: Deadline) -> Loaded:
        try:
            return future.result(deadline.left(item.where))
        except FutureTimeout as error:
            raise MediaTimeout(
                f"{item.where}: the request's media took too long", details={"field": item.where}
            ) from error

    def _load(
        self, item: MediaItem, settings: VideoSettings, budget: TokenBudget, deadline: Deadline
    ) -> Loaded:
        content = self._content(item, deadline)
        if not content:
            raise InvalidMedia(f"{item.where}: the item is empty", details={"field": item.where})
        while not self._decoding.acquire(timeout=deadline.left(item.where)):
            pass
        try:
            return self._decoded(item, content, settings, budget, deadline)
        finally:
            self._decoding.release()

    def _content(self, item: MediaItem, deadline: Deadline) -> bytes:
        match item.source:
            case Inline(content):
                return content
            case Remote(url):
                return self._downloader.fetch(url, item.where, deadline)
            case Local(path):
                return _read(path, item.where, self._limits)

    def _decoded(
        self,
        item: MediaItem,
        content: bytes,
        settings: VideoSettings,
        budget: TokenBudget,
        deadline: Deadline,
    ) -> Loaded:
        match item.kind:
            case "image":
                pixels = decode_picture(content, item.where, self._limits)
                patches = self._features.picture(pixels, digest_of(b"image", content), item.where)
                budget.spend(self._tokens(patches), item.where)
                return Loaded(item, patches)
            case "audio":
                return Loaded(item, samples=self._sound(item, content, budget, deadline))
            case "video":
                return self._video(item, content, settings, budget, deadline)

    def _sound(
        self, item: MediaItem, content: bytes, budget: TokenBudget, deadline: Deadline
    ) -> Samples:
        rate = self._features.sample_rate
        samples = decode_sound(content, rate, item.where, self._limits, deadline)
        budget.spend(len(samples) // rate * TOKENS_PER_SOUND_SECOND, item.where)
        return samples

    def _video(
        self,
        item: MediaItem,
        content: bytes,
        settings: VideoSettings,
        budget: TokenBudget,
        deadline: Deadline,
    ) -> Loaded:
        plan = plan_video(content, item.where, settings.sampling, self._limits, deadline)
        if settings.heard and not plan.has_sound:
            raise InvalidMedia(
                f"{item.where}: the video has no sound track; set use_audio_in_video to false",
                details={"field": item.where},
            )
        count = len(plan.indices)
        size = self._features.frame_size(
            settings.min_pixels, settings.max_pixels, count, budget.tokens
        )
        frames = decode_frames(content, plan, FRAMES_AT_ONCE, item.where, deadline)
        values, grid = self._features.video(frames, size, item.where)
        identity = repr((plan.indices, size, str(values.dtype))).encode()
        patches = Patches(
            values,
            grid,
            digest_of(b"video", identity, content),
            self._features.frames_per_step / plan.fps,
        )
        budget.spend(self._tokens(patches), item.where)
        samples = self._sound(item, content, budget, deadline) if settings.heard else None
        return Loaded(item, patches, samples)

    def _tokens(self, patches: Patches) -> int:
        return len(patches.values) // self._merge**2


def _read(path: os.PathLike[str], where: str, limits: MediaLimits) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(limits.max_bytes + 1)
    except OSError as error:
        raise InvalidMedia(
            f"{where}: the file cannot be read: {error.strerror}", details={"field": where}
        ) from error
    if len(content) > limits.max_bytes:
        raise MediaTooLarge(
            f"{where}: more than the {limits.max_bytes} bytes that are accepted",
            details={"field": where},
        )
    return content
