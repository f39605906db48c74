"""transformers as the judge: what `generate()` answers to a prompt, greedily.

Nothing of ours is in the way: the prompt's media are arrays, so that our decoding is judged too.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import prompts
from tests.support.prompts import VIDEO_PIXELS, Answer, Prompt, Settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers import Qwen3OmniMoeForConditionalGeneration, Qwen3OmniMoeProcessor

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

EXACT_FRAMES = 300
"""Longer speech transformers decodes in chunks of so many frames, losing samples at each seam."""


def fingerprint(checkpoint: Path) -> str:
    """Return what an answer depends on beside prompt and settings, as a few digits."""
    digest = hashlib.sha256(transformers.__version__.encode())
    for file in (Path(prompts.__file__), Path(__file__), *sorted(checkpoint.iterdir())):
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
