"""The requests that warm Qwen3-Omni up: one of words alone, and one that crosses every stage.

Both are as short as an answer can be that still decodes: two tokens, two frames of speech. The
media are as small as the encoders take.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omni_wire.messages import RequestView, Tree

FOLDER = Path(__file__).parent
TOKENS = 2


def text_requests() -> Mapping[str, RequestView]:
    """Hook `warm_up_fn` of the text pipeline."""
    return {"text": _request(["text"]), "media": _request(["text"], _media())}


def speech_requests() -> Mapping[str, RequestView]:
    """Hook `warm_up_fn` of the speech pipelines."""
    return {"text": _request(["text"]), "media and speech": _request(["text", "audio"], _media())}


def _request(modalities: list[Tree], media: Mapping[str, Tree] | None = None) -> RequestView:
    return RequestView(
        inputs={"messages": [{"role": "user", "content": "Hello"}], **(media or {})},
        # Past the end of an answer: the first token alone would come from prefill.
        params={"max_tokens": TOKENS, "ignore_eos": True, "talker_max_tokens": TOKENS, "seed": 0},
        metadata={"output_modalities": modalities},
    )


def _media() -> Mapping[str, Tree]:
    return {
        "images": [(FOLDER / "picture.png").read_bytes()],
        "audios": [(FOLDER / "sound.flac").read_bytes()],
        "videos": [(FOLDER / "video.mkv").read_bytes()],
        "video_min_pixels": 4096,
        "video_max_pixels": 16384,
    }
