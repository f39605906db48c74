"""The page and the command line on a whole pipeline, with nothing in between faked."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import browser
from tests.support.chat_pipeline import chat_pipeline
from tests.support.command_line import omni
from tests.support.page_pictures import ask, sea
from tests.support.patience import PATIENT_SECONDS


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the example that chats serves HTTP."""
    with chat_pipeline() as served:
        yield served


@pytest.mark.browser
def test_a_picture_is_shown_to_a_running_pipeline(address: str) -> None:
    with browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(PATIENT_SECONDS * 1000)
        page.goto(address)
        expect(page.locator("#state")).to_contain_text("parrot ready")
        ask(page, "what is it", sea())
        answer = page.locator(".message.assistant[aria-busy=false]")
        expect(answer.locator(".text")).to_have_text("You said: what is it (with 1 image)")
        expect(answer.locator(".length")).to_have_text("0.3 s")
        rows = page.get_by_role("complementary", name="Pipeline").get_by_role("row")
        for row, stage in enumerate(("writer", "decode", "code2wav"), start=1):
            expect(rows.nth(row)).to_contain_text(stage)

    traced = omni("trace", "--gateway", address).stdout
    request_id, status = traced.split()[:2]
    assert status == "completed"
    lanes = omni("trace", request_id, "--gateway", address).stdout
    assert [line.split()[0] for line in lanes.splitlines()[2:]] == ["writer", "decode", "code2wav"]


def test_doctor_finds_the_pipeline(address: str) -> None:
    assert "parrot is ready, 3 stages" in omni("doctor").stdout


def test_the_gateway_tells_who_set_each_value(address: str) -> None:
    told = httpx.get(
        f"{address}/v1/pipeline", params={"config": "true"}, timeout=PATIENT_SECONDS
    ).json()
    assert "config_cls: ChatExamplePipelineConfig" in told["config_yaml"]
    assert "examples/chat/pipeline.yaml" in told["provenance"]["name"]
    assert [one.get("modality", "") for one in told["stages"]] == ["", "text", "audio"]
    assert "provenance" not in httpx.get(f"{address}/v1/pipeline", timeout=PATIENT_SECONDS).json()
