"""Decoding pictures."""

from __future__ import annotations

import io
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageOps

from omni_models.media.errors import InvalidMedia, MediaTooLarge
from omni_models.media.limits import MediaLimits

Pixels: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_ASPECT_RATIO = 200
"""Longer pictures have no sensible grid of patches."""

# Sizes are checked below, before anything is decoded; Pillow's own check would only warn.
Image.MAX_IMAGE_PIXELS = None


def decode_picture(content: bytes, where: str, limits: MediaLimits) -> Pixels:
    """Return the first frame of a picture as RGB `[height, width, 3]`, upright, on white.

    Raises:
        InvalidMedia: no picture of a known format, or a broken one.
        MediaTooLarge: too many pixels.
    """
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_size(image.size, where, limits)
            return np.array(_on_white(ImageOps.exif_transpose(image)))
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise InvalidMedia(
            f"{where}: not a readable picture ({', '.join(FORMATS)}): {error}",
            details={"field": where},
        ) from error


def _check_size(size: tuple[int, int], where: str, limits: MediaLimits) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise MediaTooLarge(
            f"{where}: {width} x {height} pixels, and at most {limits.max_pixels} are accepted",
            details={"field": where},
        )
    if max(size) > MAX_ASPECT_RATIO * min(size):
        raise InvalidMedia(
            f"{where}: a picture of {width} x {height} is more than {MAX_ASPECT_RATIO} times as "
            "long as wide",
            details={"field": where},
        )


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    pixels = image.convert("RGBA")
    ground = Image.new("RGB", pixels.size, "white")
    ground.paste(pixels, mask=pixels.getchannel("A"))
    return ground
