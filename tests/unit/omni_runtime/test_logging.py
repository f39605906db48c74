"""Every line carries a request id, whoever logged it, and can be read by a machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from omni_runtime.logging import EventLogger, configure_logging
from tests.support.stage_events import key

events = EventLogger("omni_runtime.example")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_lines_quote_what_would_be_misread(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("talker")
    events.info("request failed", request=key("a"), reason="no room", code=5)
    line = capsys.readouterr().err.strip()
    assert line.endswith('INFO talker request failed request=a reason="no room" code=5')


def test_json_lines_are_objects(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("talker", "json")
    events.warning("late", request=key("a"), stage="talker@r1")
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARNING",
        "group": "talker",
        "event": "late",
        "request": "a",
        "stage": "talker@r1",
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_lines_of_libraries_have_the_field_too(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("talker", log_format)  # type: ignore[arg-type]
    logging.getLogger("elsewhere").warning("disk full")
    line = capsys.readouterr().err
    assert "request=-" in line or '"request": "-"' in line


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_failure_shows_where_it_happened(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("talker", log_format)  # type: ignore[arg-type]
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError as error:
        events.error("the group failed", error)
    said = capsys.readouterr().err
    assert "test_a_failure_shows_where_it_happened" in said
    assert "by nothing" in said


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("talker", level="WARNING")
    events.info("ready")
    assert capsys.readouterr().err == ""
