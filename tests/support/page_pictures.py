"""Draws the pictures of the page in the documents. `make pictures` runs this file."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.support.browser import browser
from tests.support.fake_gateway_http import FakeGateway, fake_gateway

IMAGES = Path(__file__).parents[2] / "docs" / "images"
QUESTION = "How does the sea look this evening, and would you take the boat out?"


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of the page."""

    name: str
    width: int
    height: int
    colours: Literal["light", "dark"]


PICTURES = (
    Picture("page-light", 1280, 860, "light"),
    Picture("page-dark", 1280, 860, "dark"),
    Picture("page-phone", 390, 844, "light"),
)


def main() -> None:
    """Draw every picture."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with fake_gateway() as gateway, browser() as chromium:
        for picture in PICTURES:
            draw(picture, gateway, chromium)


def draw(picture: Picture, gateway: FakeGateway, chromium: Browser) -> None:
    """Ask with a picture, and draw what is seen once the answer is there."""
    page = chromium.new_page(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.colours,
        reduced_motion="reduce",
    )
    page.goto(gateway.address)
    ask(page, QUESTION, sea())
    expect(page.get_by_role("link", name="Save")).to_be_visible()
    page.get_by_role("button", name="Stop the speech").click()
    page.screenshot(path=IMAGES / f"{picture.name}.png")
    page.close()


def ask(page: Page, text: str, picture: bytes | None = None) -> None:
    """Send a message, with a PNG picture if there is one."""
    if picture is not None:
        file = FilePayload(name="picture.png", mimeType="image/png", buffer=picture)
        page.locator("#files").set_input_files(file)
    page.get_by_label("Message", exact=True).and_(page.get_by_role("textbox")).fill(text)
    page.keyboard.press("Enter")


def sea(width: int = 240, height: int = 150) -> bytes:
    """Return a small picture of the sea in the evening, as PNG."""
    rows = b"".join(b"\0" + _row(y / height, width) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _row(y: float, width: int) -> bytes:
    if y > 0.6:
        shade = (y - 0.6) / 0.4
        return bytes((int(60 - 30 * shade), int(95 - 40 * shade), int(120 - 45 * shade))) * width
    glow = y / 0.6
    sky = bytes((int(90 + 150 * glow), int(110 + 60 * glow), int(150 - 40 * glow)))
    half = max(0.0, 1 - ((y - 0.6) / 0.16) ** 2) ** 0.5 * 0.1 * width
    left, right = int(width * 0.62 - half), int(width * 0.62 + half)
    return sky * left + bytes((255, 226, 170)) * (right - left) + sky * (width - right)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


if __name__ == "__main__":
    main()
