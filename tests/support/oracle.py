"""transformers as the judge: what `generate()` answers to a prompt, greedily.

Nothing of ours is in the way: the prompt's media are arrays, so that our decoding is judged too.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tests.support import media
from tests.support.media import Pixels, Samples

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers import Qwen3OmniMoeForConditionalGeneration, Qwen3OmniMoeProcessor

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

# Small enough that a video prompt costs a few dozen tokens instead of hundreds.
VIDEO_PIXELS = {"shortest_edge": 4096, "longest_edge": 65536}
MIN_DISTINCT = 15
EXACT_FRAMES = 300
"""Longer speech transformers decodes in chunks of so many frames, losing samples at each seam."""


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


def fingerprint(checkpoint: Path) -> str:
    """Return what an answer depends on beside prompt and settings, as a few digits."""
    digest = hashlib.sha256(transformers.__version__.encode())
    for file in (Path(__file__), *sorted(checkpoint.iterdir())):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Oracle:
    """`generate()` of one checkpoint; answers are kept in `cache`.

    Args:
        checkpoint: folder of the checkpoint.
        cache: folder for answers; other processes may share it.
    """

    def __init__(self, checkpoint: Path, cache: Path) -> None:
        self.checkpoint = checkpoint
        self.processor: Any = Qwen3OmniMoeProcessor.from_pretrained(checkpoint)
        self._cache = cache
        self._model: Any = None

    @property
    def model(self) -> Any:
        """The float32 model, loaded on first use."""
        if self._model is None:
            kind: Any = Qwen3OmniMoeForConditionalGeneration
            self._model = kind.from_pretrained(self.checkpoint, dtype=torch.float32).eval()
            # transformers 5.19 looks for this where it is not, when a prompt has both sounds and
            # pictures.
            self._model.talker.config.audio_config = self._model.config.thinker_config.audio_config
        return self._model

    def inputs(self, prompt: Prompt) -> Any:
        """Return what the processor makes of a prompt, as a batch of one."""
        messages = [dict(message) for message in prompt.messages]
        text = self.processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        media_inputs: dict[str, Any] = {}
        if prompt.images:
            media_inputs["images"] = list(prompt.images)
        if prompt.audios:
            media_inputs["audio"] = list(prompt.audios)
        if prompt.videos:
            media_inputs |= {
                "videos": [torch.from_numpy(f).permute(0, 3, 1, 2) for f in prompt.videos],
                "fps": prompt.video_fps,
                "size": VIDEO_PIXELS,
                "cap_pixels_per_frame": False,
                "use_audio_in_video": prompt.use_audio_in_video,
            }
        return self.processor(text=[text], return_tensors="pt", **media_inputs)

    def answer(self, prompt: Prompt, settings: Settings | None = None) -> Answer:
        """Return the greedy answer to a prompt."""
        settings = settings or Settings()
        content = pickle.dumps((prompt, settings))
        file = self._cache / f"{hashlib.sha256(content).hexdigest()}.npz"
        if not file.exists():
            found = self._generate(prompt, settings)
            partial = file.with_suffix(f".{os.getpid()}.npz")
            np.savez(
                partial,
                input_ids=found.input_ids,
                text_ids=found.text_ids,
                codes=found.codes,
                wav=found.wav,
            )
            partial.rename(file)
        with np.load(file) as arrays:
            return Answer(**{name: arrays[name] for name in arrays.files})

    def _generate(self, prompt: Prompt, settings: Settings) -> Answer:
        model, inputs = self.model, self.inputs(prompt)
        user_rows, chunked = model._get_talker_user_parts, model.code2wav.chunked_decode
        heard: list[Any] = []

        def zeroed(start: int, end: int, mask: Any, hidden: Any, embedded: Any) -> Any:
            return user_rows(start, end, mask, torch.zeros_like(hidden), embedded)

        def decode(codes: Any, **chunks: Any) -> Any:
            heard.append(codes)
            if codes.shape[-1] > EXACT_FRAMES:
                return model.code2wav(codes)
            return chunked(codes, **chunks)

        model.code2wav.chunked_decode = decode
        if settings.zero_media_rows:
            model._get_talker_user_parts = zeroed
        try:
            # One more of each: the last text token never reaches the talker, and the last talker
            # token gets no frame.
            with warnings.catch_warnings():
                # The penalty looks at generated codes alone, as it should.
                warnings.filterwarnings("ignore", message="Passing `repetition_penalty`")
                sequence, wave = model.generate(
                    **inputs,
                    thinker_max_new_tokens=settings.max_tokens + 1,
                    thinker_do_sample=False,
                    thinker_repetition_penalty=settings.text_penalty,
                    thinker_eos_token_id=model.config.im_end_token_id,
                    talker_do_sample=False,
                    talker_repetition_penalty=settings.repetition_penalty,
                    talker_max_new_tokens=settings.max_frames + 1,
                    speaker=settings.speaker,
                    use_audio_in_video=prompt.use_audio_in_video,
                )
        finally:
            model.code2wav.chunked_decode = chunked
            model._get_talker_user_parts = user_rows
        prompt_ids = inputs["input_ids"][0].numpy()
        text_ids = sequence[0, len(prompt_ids) :][: settings.max_tokens].numpy()
        return Answer(prompt_ids, text_ids, heard[0][0].numpy(), wave.reshape(-1).numpy())
