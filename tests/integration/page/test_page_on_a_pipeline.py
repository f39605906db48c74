"""The page on a whole pipeline: browser, gateway and stages, with nothing in between faked."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browser import browser
from tests.support.chat_pipeline import chat_pipeline
from tests.support.page_pictures import ask, sea

pytestmark = pytest.mark.browser


def test_a_picture_is_shown_to_a_running_pipeline() -> None:
    with chat_pipeline() as address, browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(30_000)
        page.goto(address)
        expect(page.locator("#state")).to_contain_text("parrot ready", timeout=30_000)
        ask(page, "what is it", sea())
        finished = page.locator(".message.assistant[aria-busy=false]")
        expect(finished.locator(".text")).to_have_text(
            "You said: what is it (with 1 image)", timeout=30_000
        )
        expect(finished.locator(".length")).to_have_text("0.3 s")
        rows = page.get_by_role("complementary", name="Pipeline").get_by_role("row")
        for row, stage in enumerate(("writer", "decode", "code2wav"), start=1):
            expect(rows.nth(row)).to_contain_text(stage, timeout=30_000)
