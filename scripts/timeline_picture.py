"""A picture of what each stage did when, drawn from the timeline of one answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from PIL import Image, ImageDraw, ImageFont

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"

WIDTH, ROW, TOP, LEFT, RIGHT = 1000, 44, 70, 170, 40
INK, PALE, BAR, FIRST = "#1f2933", "#d8dee4", "#7aa5d8", "#d9480f"


def draw_timeline(timeline: Mapping[str, Mapping[str, Any]], title: str, file: Path) -> None:
    """Write a PNG with one bar per stage, in the order in which they began.

    Args:
        timeline: `opened`, `first_output` and `finished` of each stage, in Unix seconds.
    """
    begin = min(entry["opened"] for entry in timeline.values())
    total = max(entry["finished"] for entry in timeline.values()) - begin
    scale = (WIDTH - LEFT - RIGHT) / (total or 1)
    image = Image.new("RGB", (WIDTH, TOP + ROW * len(timeline) + 60), "white")
    draw = ImageDraw.Draw(image)
    large, small = ImageFont.load_default(size=20), ImageFont.load_default(size=14)
    draw.text((20, 18), title, INK, large)
    _draw_axis(draw, total, scale, TOP + ROW * len(timeline), small)
    for row, (stage, entry) in enumerate(timeline.items()):
        y = TOP + row * ROW
        left, right = (LEFT + (entry[name] - begin) * scale for name in ("opened", "finished"))
        draw.text((20, y + 10), stage, INK, small)
        draw.rectangle((left, y + 6, max(right, left + 2), y + ROW - 10), BAR)
        milliseconds = (entry["finished"] - entry["opened"]) * 1000
        draw.text((left + 6, y + 10), f"{milliseconds:.0f} ms", INK, small)
        if entry["first_output"] is not None:
            x = LEFT + (entry["first_output"] - begin) * scale
            draw.line((x, y + 2, x, y + ROW - 6), FIRST, 3)
    image.save(file, "PNG")


def _draw_axis(
    draw: ImageDraw.ImageDraw, total: float, scale: float, bottom: int, font: Font
) -> None:
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60) if total / s <= 12)
    for number in range(int(total / step) + 1):
        x = LEFT + number * step * scale
        draw.line((x, TOP - 6, x, bottom), PALE)
        draw.text((x, bottom + 6), f"{number * step * 1000:.0f}", INK, font, anchor="ma")
    draw.text((20, bottom + 6), "milliseconds", INK, font)
    draw.text((LEFT, bottom + 30), "orange: first output of a stage that streams", FIRST, font)
