"""What the judge and the pipeline are asked alike, and the form of an answer. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tests.support import media
from tests.support.media import Pixels, Samples

Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

# Small enough that a video prompt costs a few dozen tokens instead of hundreds.
VIDEO_PIXELS = {"shortest_edge": 4096, "longest_edge": 65536}
MIN_DISTINCT = 15


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation and its media, in the order in which the messages mention them.

    Attributes:
        messages: turns whose content is text or parts `{"type": "text", "text": …}`,
            `{"type": "image"}`, `{"type": "audio"}`, `{"type": "video"}`.
        images, audios, videos: RGB pictures, 16 kHz sounds, RGB frames at `video_fps`.
        use_audio_in_video: hear each video; its sound is the audio of the same place.
    """

    messages: tuple[Mapping[str, Any], ...]
    images: tuple[Pixels, ...] = ()
    audios: tuple[Samples, ...] = ()
    videos: tuple[Pixels, ...] = ()
    video_fps: float = 2.0
    use_audio_in_video: bool = False

    def openai_messages(self) -> list[dict[str, Any]]:
        """Return the same prompt as a client writes it, media as data URLs without loss."""
        left = {
            "image": [_image_part(pixels) for pixels in self.images],
            "audio": [_audio_part(samples) for samples in self.audios],
            "video": self._video_parts(),
        }
        return [
            {
                **message,
                "content": message["content"]
                if isinstance(message["content"], str)
                else [
                    part if part["type"] == "text" else left[part["type"]].pop(0)
                    for part in message["content"]
                ],
            }
            for message in self.messages
        ]

    def _video_parts(self) -> list[dict[str, Any]]:
        tracks: tuple[Samples | None, ...] = (None,) * len(self.videos)
        if self.use_audio_in_video:
            tracks = self.audios
        return [
            {
                "type": "video_url",
                "video_url": {
                    "url": media.data_url(
                        "video/x-matroska", media.mkv(frames, int(self.video_fps), track)
                    )
                },
            }
            for frames, track in zip(self.videos, tracks, strict=True)
        ]


def _image_part(pixels: Pixels) -> dict[str, Any]:
    url = media.data_url("image/png", media.png(pixels))
    return {"type": "image_url", "image_url": {"url": url}}


def _audio_part(samples: Samples) -> dict[str, Any]:
    encoded = media.data_url("audio/wav", media.wav(samples)).partition(",")[2]
    return {"type": "input_audio", "input_audio": {"data": encoded, "format": "wav"}}


def user(*content: str) -> dict[str, Any]:
    """Return a turn of the user: `image`, `audio` and `video` stand for media, the rest is text."""
    kinds = ("image", "audio", "video")
    parts = [{"type": c} if c in kinds else {"type": "text", "text": c} for c in content]
    return {"role": "user", "content": parts}


PROMPTS: Mapping[str, Prompt] = {
    "text": Prompt((user("Say a short sentence about the weather today."),)),
    "image": Prompt(
        (user("image", "What do you see in this picture?"),), images=(media.picture(),)
    ),
    "audio": Prompt((user("audio", "What do you hear in this clip?"),), audios=(media.sound(),)),
    "video": Prompt((user("video", "What happens in the video?"),), videos=(media.video(),)),
    "mixed": Prompt(
        (
            {"role": "system", "content": "You are a helpful assistant."},
            user("Describe ", "image", " and ", "audio", " and ", "video", " in one sentence."),
        ),
        images=(media.picture(64, 64, 31),),
        audios=(media.sound(0.7, 330),),
        videos=(media.video(6, 64, 64),),
    ),
    "turns": Prompt(
        (
            {"role": "system", "content": "You are a helpful assistant."},
            user("image", "What do you see?"),
            {"role": "assistant", "content": "The quick brown fox."},
            user("And what do you hear?", "audio"),
        ),
        images=(media.picture(128, 96, 5),),
        audios=(media.sound(1.5, 150),),
    ),
    "heard video": Prompt(
        (user("video", "What happens in the video?"),),
        audios=(media.sound(2.0, 260),),
        videos=(media.video(),),
        use_audio_in_video=True,
    ),
}


def _told(how: str, *content: str) -> tuple[Mapping[str, Any], ...]:
    return ({"role": "system", "content": how}, user(*content))


OTHER_PROMPTS: Mapping[str, Prompt] = {
    "text": Prompt(_told("Answer in one short sentence.", "Which way does the river run?")),
    "image": Prompt(
        _told("Speak slowly.", "Which colours are there?", "image"),
        images=(media.picture(64, 96, 11),),
    ),
    "audio": Prompt(_told("Be brief.", "Who is it?", "audio"), audios=(media.sound(1.2, 410),)),
    "video": Prompt(
        _told("You know a lot.", "Where does it go?", "video"), videos=(media.video(6, 64, 96),)
    ),
    "mixed": Prompt(
        _told(
            "Answer in one short sentence.",
            "audio",
            "Compare it with ",
            "video",
            " and with ",
            "image",
            ".",
        ),
        images=(media.picture(96, 96, 77),),
        audios=(media.sound(0.9, 520),),
        videos=(media.video(4, 96, 96),),
    ),
    "turns": Prompt(
        (
            *_told("Answer in one short sentence.", "audio", "What was that?"),
            {"role": "assistant", "content": "A bird in the garden."},
            user("image", "And is this where it lives?"),
            {"role": "assistant", "content": "No, it lives in a tree."},
            user("Describe the two together."),
        ),
        images=(media.picture(96, 128, 23),),
        audios=(media.sound(0.6, 700),),
    ),
    "heard video": Prompt(
        _told("Answer in one short sentence.", "Does the sound belong to it?", "video"),
        audios=(media.sound(3.0, 190),),
        videos=(media.video(6, 64, 64),),
        use_audio_in_video=True,
    ),
    "pictures": Prompt(
        _told("Be brief.", "image", "image", "Are they the same?"),
        images=(media.picture(64, 64, 90), media.picture(128, 64, 91)),
    ),
}
"""Eight prompts of the same kinds that share next to nothing with the seven above.

Their words were chosen so that the five checkpoints of the comparison answer all with variety.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the judge generates.

    Attributes:
        max_tokens, max_frames: most text tokens and codec frames.
        repetition_penalty: of the talker.
        text_penalty: of the thinker.
        zero_media_rows: give the talker zeros at media positions instead of hidden rows.
    """

    max_tokens: int = 24
    max_frames: int = 24
    repetition_penalty: float = 1.0
    text_penalty: float = 1.0
    speaker: str = "Ethan"
    zero_media_rows: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What the judge says.

    Attributes:
        input_ids: of the prompt, `[tokens]`.
        text_ids: of the answer, with the end token where one came, `[tokens]`.
        codes: `[groups, frames]`.
        wav: float32 at 24 kHz, `[1920 frames - 555]`.
    """

    input_ids: Ids
    text_ids: Ids
    codes: Ids
    wav: Samples

    def require_variety(self) -> None:
        """Fail where text or speech repeats itself: equality of such an answer proves little."""
        tokens, frames = len(set(self.text_ids)), len({tuple(f) for f in self.codes.T.tolist()})
        assert min(tokens, frames) >= MIN_DISTINCT, f"{tokens} tokens, {frames} frames differ"
