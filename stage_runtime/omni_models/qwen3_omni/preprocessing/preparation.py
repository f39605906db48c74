"""One request through preprocessing: checked, loaded, tokenised, cut into what each stage reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from omni_models.qwen3_omni.encoders.audio import AudioConfig
from omni_models.qwen3_omni.preprocessing.conversation import Conversation, ConversationReader
from omni_models.qwen3_omni.preprocessing.features import (
    Features,
    Patches,
    PromptMedia,
    Spectra,
)
from omni_models.qwen3_omni.preprocessing.media_loading import Loaded, MediaLoading, TokenBudget
from omni_models.qwen3_omni.preprocessing.wishes import Wishes, WishReader
from omni_runtime.sglang_bridge.sampling import Grammar
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Payload, RequestView, Tree


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares requests (`omni_runtime.simple_scheduler.Compute`); callable from many threads.

    Attributes:
        context: most tokens of prompt and answer.
    """

    wishes: WishReader
    conversations: ConversationReader
    features: Features
    media: MediaLoading
    audio: AudioConfig
    context: int

    def __call__(self, payload: Payload) -> Payload:
        """Return the prompt and the inputs of the encoders; the request goes on without its media.

        Raises:
            ServiceError: the request cannot be served; the message names the part at fault.
        """
        request = payload.request
        if request is None:
            raise InvalidRequest("there is no request to prepare")
        wishes = self.wishes.read(request)
        conversation = self.conversations.read(request.inputs)
        self._refuse_texts(conversation, wishes.tools)
        loaded = self.media.load(conversation.items, wishes.video, TokenBudget(self.context))
        data = self._prepared(conversation, wishes, loaded)
        return replace(
            payload, data=data, request=RequestView({}, request.params, request.metadata)
        )

    def _refuse_texts(
        self, conversation: Conversation, tools: Sequence[Mapping[str, object]]
    ) -> None:
        """Refuse what needs no tokenizer to be seen as wrong."""
        calls = [turn.get("tool_calls") for turn in conversation.turns]
        said = [*conversation.texts, json.dumps(calls, ensure_ascii=False)]
        declared = json.dumps(list(tools), ensure_ascii=False)
        for placeholder in self.features.placeholders:
            for field, texts in (("messages", said), ("tools", [declared])):
                if any(placeholder in text for text in texts):
                    raise InvalidRequest(
                        f"text may not hold {placeholder}, which stands for media",
                        details={"field": field},
                    )
        if sum(map(len, (*said, declared))) > self.context * self.features.longest_token:
            raise self._too_long("far more", None)

    def _prepared(
        self, conversation: Conversation, wishes: Wishes, loaded: Sequence[Loaded]
    ) -> dict[str, Tree]:
        images = [it.patches for it in loaded if it.item.kind == "image" and it.patches]
        videos = [it.patches for it in loaded if it.item.kind == "video" and it.patches]
        samples = [it.samples for it in loaded if it.samples is not None]
        spectra = self.features.sounds(samples, self.audio.chunk) if samples else None
        prompt = PromptMedia(
            [patches.grid for patches in images],
            [patches.grid for patches in videos],
            [patches.seconds_per_grid for patches in videos],
            [self.audio.rows(length) for length in spectra.lengths] if spectra else [],
            wishes.video.heard and bool(videos),
        )
        ids = self.features.prompt(conversation.turns, wishes.tools, prompt)
        if len(ids) + (wishes.max_tokens or 1) > self.context:
            raise self._too_long(str(len(ids)), wishes.max_tokens)
        return {
            "prompt": {"input_ids": ids, "grammar": _grammar(wishes.grammar)},
            "media": _media(images, videos, spectra, prompt),
            "encoder_inputs": _encoder_inputs(images, videos, spectra),
        }

    def _too_long(self, tokens: str, answer: int | None) -> InvalidRequest:
        wanted = "" if answer is None else f" and max_tokens asks for {answer} more"
        return InvalidRequest(
            f"the prompt has {tokens} tokens{wanted}; the context has {self.context}",
            details={"field": "messages"},
        )


def _grammar(grammar: Grammar | None) -> Tree:
    return None if grammar is None else asdict(grammar)


def _media(
    images: Sequence[Patches],
    videos: Sequence[Patches],
    spectra: Spectra | None,
    prompt: PromptMedia,
) -> dict[str, Tree]:
    media: dict[str, Tree] = {}
    if images:
        media["image"] = {"grid_thw": _grids(images), "hashes": _digests(images)}
    if videos:
        media["video"] = {
            "grid_thw": _grids(videos),
            "seconds_per_grid": np.array(prompt.seconds_per_grid),
            "hashes": _digests(videos),
        }
    if spectra is not None:
        media["audio"] = {
            "lengths": np.array(spectra.lengths, np.int64),
            "hashes": list(spectra.digests),
        }
    if prompt.heard:
        media["audio_in_video"] = True
    return media


def _encoder_inputs(
    images: Sequence[Patches], videos: Sequence[Patches], spectra: Spectra | None
) -> Mapping[str, Tree]:
    seen: dict[str, Tree] = {}
    for kind, pixels, items in (
        ("image", "pixel_values", images),
        ("video", "pixel_values_videos", videos),
    ):
        if items:
            seen |= {
                pixels: torch.cat([item.values for item in items]),
                f"{kind}_grid_thw": _grids(items),
                f"{kind}_hashes": _digests(items),
            }
    heard: dict[str, Tree] = {}
    if spectra is not None:
        heard = {
            "input_features": spectra.values,
            "lengths": np.array(spectra.lengths, np.int64),
            "hashes": list(spectra.digests),
        }
    skip: Tree = {"_skip": True}
    return {"image_encoder": seen or skip, "audio_encoder": heard or skip}


def _grids(items: Sequence[Patches]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([item.grid for item in items], np.int64)


def _digests(items: Sequence[Patches]) -> list[Tree]:
    return [item.digest for item in items]
