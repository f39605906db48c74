"""The page in a real browser: what a person sees, hears and can do with a keyboard alone."""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import browser
from tests.support.fake_gateway_http import FakeGateway, answer_to, fake_gateway, tone
from tests.support.page_pictures import ask, sea
from tests.support.patience import PATIENT_SECONDS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as launched:
        yield launched


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as served:
        yield served


@pytest.fixture
def page(chromium: Browser, gateway: FakeGateway) -> Iterator[Page]:
    """The page, just opened; nothing may go wrong in its console or reach for another host."""
    opened = chromium.new_page(reduced_motion="reduce")
    opened.set_default_timeout(PATIENT_SECONDS * 1000)
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda line: complaints.append(line.text) if _alarms(line.text) else None)
    addresses: list[str] = []
    opened.on("request", lambda request: addresses.append(request.url))
    opened.goto(gateway.address)
    yield opened
    opened.close()
    assert complaints == []
    foreign = [url for url in addresses if not url.startswith((gateway.address, "blob:", "data:"))]
    assert foreign == []


def _alarms(line: str) -> bool:
    """Chromium writes a line about every refused request; the page shows those to the user."""
    return "Failed to load resource" not in line


def test_a_question_with_a_picture_is_answered_in_text_and_sound(
    page: Page, gateway: FakeGateway
) -> None:
    ask(page, "what is it", sea())

    answer = page.locator(".message.assistant")
    expect(answer).to_have_attribute("aria-busy", "false")
    expect(answer.locator(".text")).to_have_text("You said: what is it")
    with page.expect_download() as saving:
        page.get_by_role("link", name="Save").click()
    assert _samples(saving.value.path().read_bytes()) == b"".join(tone(i) for i in range(5))
    expect(page.get_by_role("button", name="Play the speech")).to_be_visible()

    sent = gateway.requests[0]
    assert sent["modalities"] == ["text", "audio"]
    picture, text = sent["messages"][0]["content"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert text == {"type": "text", "text": "what is it"}


def test_speech_sounds_while_it_plays_and_stops_when_told(page: Page) -> None:
    ask(page, "la " * 150)  # half a minute
    page.get_by_role("button", name="Stop the speech").click()
    expect(page.get_by_role("button", name="Play the speech")).to_be_visible()
    page.get_by_role("button", name="Play the speech").click()
    expect(page.get_by_role("button", name="Stop the speech")).to_be_visible()


def test_the_next_question_carries_the_conversation(page: Page, gateway: FakeGateway) -> None:
    page.get_by_role("switch", name="Speak").press("Space")
    for number, text in enumerate(("one", "two"), start=1):
        ask(page, text)
        finished = page.locator(".message.assistant[aria-busy=false]")
        expect(finished).to_have_count(number)
    assert gateway.requests[1]["modalities"] == ["text"]
    assert gateway.requests[1]["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": f"{answer_to('one')} "},
        {"role": "user", "content": "two"},
    ]
    page.get_by_role("button", name="New").click()
    expect(page.locator(".message")).to_have_count(0)


def test_a_recording_is_sent_as_sound(page: Page, gateway: FakeGateway) -> None:
    page.get_by_role("button", name="Record the microphone").click()
    expect(
        page.get_by_role("status").filter(has_text=re.compile(r"Recording, [1-9]\d* s"))
    ).to_be_visible()
    page.get_by_role("button", name="Stop recording").click()
    expect(page.get_by_role("button", name="Remove recording.wav")).to_be_visible()
    ask(page, "listen")
    expect(page.locator(".message.assistant[aria-busy=false]")).to_have_count(1)
    sound = gateway.requests[0]["messages"][0]["content"][0]
    assert sound["type"] == "input_audio"
    assert sound["input_audio"]["format"] == "wav"
    assert sound["input_audio"]["data"].startswith("UklGR"), "RIFF"


def test_stop_leaves_the_request(page: Page, gateway: FakeGateway) -> None:
    ask(page, "(endless)")
    expect(page.locator(".message.assistant .text")).to_have_text("You said: (endless)")
    page.get_by_role("button", name="Stop", exact=True).click()
    assert gateway.left.wait(PATIENT_SECONDS)
    expect(page.locator(".facts")).to_contain_text("stopped")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_busy_gateway_is_asked_again_after_its_time(page: Page, gateway: FakeGateway) -> None:
    ask(page, "(busy)")
    failure = page.get_by_role("alert")
    expect(failure).to_contain_text("32 requests are in flight")
    expect(failure).to_contain_text("QUEUE_FULL, status 429")
    again = failure.get_by_role("button", name="Try again", exact=True)
    expect(again).to_be_enabled()
    again.click()
    expect(page.get_by_role("alert")).to_have_count(1)
    assert [one["messages"] for one in gateway.requests] == [gateway.requests[0]["messages"]] * 2


def test_a_failure_in_the_middle_keeps_what_was_said(page: Page) -> None:
    ask(page, "(fail)")
    expect(page.get_by_role("alert")).to_contain_text("thinker failed")
    expect(page.locator(".message.assistant .text")).to_have_text("You said: (fail)")


def test_an_api_key_is_asked_for_and_kept_for_the_session(page: Page, gateway: FakeGateway) -> None:
    gateway.key = "secret"
    ask(page, "hello")
    page.get_by_role("button", name="Enter an API key").click()
    page.get_by_label("API key").fill("secret")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".message.assistant[aria-busy=false] .text")).to_have_text(
        "You said: hello"
    )
    stored = page.evaluate("[JSON.stringify(sessionStorage), JSON.stringify(localStorage)]")
    assert "secret" in stored[0]
    assert "secret" not in stored[1]


def test_the_pipeline_is_drawn_and_told(page: Page, gateway: FakeGateway) -> None:
    stages = page.get_by_role("list", name="Stages")
    expect(page.locator("#picture g.stage")).to_have_count(8)
    expect(page.locator("#picture .edge.stream")).to_have_count(3)
    expect(stages).to_contain_text("thinker: ready, group thinker")
    gateway.unready.add("thinker")
    expect(stages).to_contain_text("thinker: 0 of 1 ready, group thinker; thinker: loading weights")
    expect(page.locator("#state")).to_contain_text("waiting for 1 of 8 stages")


def test_a_request_shows_its_time_in_each_stage(page: Page) -> None:
    ask(page, "hello")
    rows = page.get_by_role("complementary", name="Pipeline").get_by_role("row")
    expect(rows.filter(has_text="talker_ar")).to_contain_text("1.8 s")


def test_the_pipeline_lies_over_the_conversation_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    ask(page, "hello")
    page.get_by_role("button", name="Time per stage").click()
    pipeline = page.get_by_role("complementary", name="Pipeline")
    expect(pipeline).to_be_focused()
    page.keyboard.press("Escape")
    expect(pipeline).to_be_hidden()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()


def test_everything_is_reached_with_the_keyboard_alone(page: Page, gateway: FakeGateway) -> None:
    message = page.get_by_role("textbox", name="Message")
    expect(message).to_be_focused()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant[aria-busy=false]")).to_have_count(1)
    expect(message).to_be_focused()

    wanted = {"Add a picture, sound or film", "Record the microphone", "Speak", "Send", "New"}
    wanted |= {"Pipeline", "Settings", "Skip to the message", "Conversation", "Save"}
    wanted |= {"Time per stage"}
    seen: set[str] = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(FOCUSED_NAME))
    assert wanted <= seen, wanted - seen

    page.get_by_role("button", name="Settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.press("Escape")
    expect(message).to_be_focused()

    page.keyboard.type("(endless)")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    assert gateway.left.wait(PATIENT_SECONDS)


FOCUSED_NAME = """() => {
  const focused = document.activeElement;
  const name = focused.getAttribute("aria-label") ?? focused.textContent.trim();
  return name || (focused.labels?.[0]?.textContent.trim() ?? "");
}"""


@pytest.mark.parametrize(
    ("colours", "width"),
    [pytest.param("light", 1280, id="desk"), pytest.param("dark", 360, id="phone at night")],
)
def test_nobody_is_shut_out(
    page: Page, gateway: FakeGateway, colours: Literal["light", "dark"], width: int
) -> None:
    """axe-core finds nothing serious in any state of the page."""
    page.emulate_media(color_scheme=colours)
    page.set_viewport_size({"width": width, "height": 800})
    expect(page.locator("#state")).to_have_attribute("data-state", "ready")
    _refuse_serious(page, "welcome")
    ask(page, "what is it", sea())
    expect(page.locator(".message.assistant[aria-busy=false] .facts button")).to_be_visible()
    ask(page, "(fail)")
    expect(page.get_by_role("alert")).to_be_visible()
    _refuse_serious(page, "conversation")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no sideways scroll"
    page.get_by_role("button", name="Time per stage").click()
    expect(page.get_by_role("table")).to_be_visible()
    _refuse_serious(page, "times")
    page.get_by_role("button", name="Settings").click()
    _refuse_serious(page, "settings")


def _refuse_serious(page: Page, state: str) -> None:
    violations = Axe().run(page).response["violations"]
    grave = [
        (one["id"], [node["html"] for node in one["nodes"]])
        for one in violations
        if one["impact"] in ("serious", "critical")
    ]
    assert grave == [], state


def _samples(wav: bytes) -> bytes:
    with wave.open(io.BytesIO(wav)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        samples: bytes = file.readframes(file.getnframes())
    return samples
