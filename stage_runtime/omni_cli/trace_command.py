"""`omni trace`: when each stage worked on a request."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from omni_cli.application import application
from omni_cli.gateway_http import get_json
from omni_cli.output import Format, Line, Span, line, print_data, print_lines, speaks_unicode

app = application()

LANE = 48
_BLOCKS = ("·", "░", "█")
_LETTERS = (".", "-", "#")
_STYLES = {"completed": "green", "failed": "red", "aborted": "yellow"}


@app.command()
def trace(
    request_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Request; without it, list the latest.")
    ] = None,
    gateway: Annotated[
        str, typer.Option(envvar="OMNI_GATEWAY", help="HTTP address of the gateway.")
    ] = "http://127.0.0.1:8000",
    api_key: Annotated[
        str | None, typer.Option(envvar="OMNI_API_KEY", help="Key, where the gateway asks for one.")
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="How to print it.")
    ] = Format.TEXT,
) -> None:
    """Show a request's time in each stage. A gateway remembers its latest 256 requests."""
    path = "v1/requests" if request_id is None else f"v1/requests/{quote(request_id, safe='')}"
    found = get_json(gateway, path, api_key)
    if output is not Format.TEXT:
        print_data(found, output)
    elif request_id is None:
        print_lines(request_lines(found["requests"]))
    else:
        print_lines(timeline_lines(found, unicode=speaks_unicode(sys.stdout)))


def request_lines(requests: list[dict[str, Any]]) -> Iterator[Line]:
    """Yield a line per request, as the gateway lists them."""
    if not requests:
        yield line("no request yet")
    for request in requests:
        yield _headline(request)


def timeline_lines(timeline: Mapping[str, Any], *, unicode: bool = True) -> Iterator[Line]:
    """Yield a request and a lane per stage: pale until its first output, full from there on.

    Args:
        timeline: as the gateway tells it; times in seconds since admission.
        unicode: draw lanes with block characters.
    """
    yield _headline(timeline)
    stages = timeline["stages"]
    if not stages:
        yield line("  no stage has told its times", "dim")
        return
    yield line()
    end = max(timeline["seconds"] or 0.0, *(span["finished"] for span in stages), 1e-9)
    width = max(len(span["instance"]) for span in stages)
    for span in stages:
        seconds = span["finished"] - span["opened"]
        yield (
            Span(f"  {span['instance']:<{width}}  "),
            *_lane(span, end, _BLOCKS if unicode else _LETTERS),
            Span(f"  {duration(seconds):>8}", "bold"),
            Span(f"  from {duration(span['opened'])} to {duration(span['finished'])}", "dim"),
        )


def duration(seconds: float) -> str:
    """Return seconds as people read them."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _headline(request: Mapping[str, Any]) -> Line:
    status, seconds = request["status"], request["seconds"]
    after = "" if seconds is None else f" after {duration(seconds)}"
    reason = f" ({request['reason']})" if request.get("reason") else ""
    style = _STYLES.get(status, "")
    return (Span(request["request_id"], "bold"), Span(f"  {status}", style), Span(after + reason))


def _lane(span: Mapping[str, Any], end: float, marks: tuple[str, str, str]) -> Iterator[Span]:
    first_output = span["opened"] if span["first_output"] is None else span["first_output"]
    empty, waiting, making = marks
    start, full = _cell(span["opened"], end), _cell(first_output, end)
    # However short its work, a stage shows.
    stop = min(LANE, max(_cell(span["finished"], end), full + 1))
    full = min(full, stop - 1)
    start = min(start, full)
    yield Span(empty * start, "dim")
    yield Span(waiting * (full - start), "cyan")
    yield Span(making * (stop - full), "cyan")
    yield Span(empty * (LANE - stop), "dim")


def _cell(seconds: float, end: float) -> int:
    return min(LANE, max(0, round(LANE * seconds / end)))
