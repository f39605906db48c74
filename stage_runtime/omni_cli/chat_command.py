"""`omni chat`: ask a running pipeline something; text streams to the terminal, speech to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.chat_answer import ChatAnswer, ChatProgress
from omni_client import OmniClient
from omni_config.errors import OmniError
from omni_wire.messages import Tree

app = application()


class UnreadableFile(OmniError):
    """A file named on the command line cannot be read."""


@app.command()
def chat(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    target: Annotated[str, typer.Option(help="Gateway, as HOST:PORT.")] = "127.0.0.1:50050",
    image: Annotated[list[Path] | None, typer.Option(help="Picture to show; repeatable.")] = None,
    audio: Annotated[list[Path] | None, typer.Option(help="Sound to play; repeatable.")] = None,
    video: Annotated[list[Path] | None, typer.Option(help="Video to show; repeatable.")] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    speech: Annotated[
        bool, typer.Option("--speech/--text-only", help="Whether the answer is spoken too.")
    ] = True,
    wav: Annotated[Path, typer.Option(help="File for the speech.")] = Path("answer.wav"),
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Parameter, such as max_tokens=50; repeatable."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OMNI_API_KEY", help="Key, where the gateway asks for one.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for the whole answer.")] = 600.0,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object at the end instead, with token ids, codec codes, the "
            "timeline, and the speech as base64 of float32 samples; null is what there is none of.",
        ),
    ] = False,
) -> None:
    """Ask something; prints the answer as it comes, and writes the speech to a wav file."""
    inputs = _inputs(sys.stdin.read() if text == "-" else text, system)
    for name, files in (("images", image), ("videos", video), ("audios", audio)):
        if files:
            inputs[name] = [_content(file) for file in files]
    params = _params(param or ())
    if as_json and speech:
        params["return_codes"] = True
    progress = ChatProgress(None if as_json else sys.stdout)
    with OmniClient(target, api_key=api_key, timeout_seconds=timeout) as client:
        events = client.generate(
            inputs,
            modalities=["text", "audio"] if speech else ["text"],
            params=params,
            stage_events=True,
        )
        with events:
            answer = progress.read(events)
    if as_json:
        sys.stdout.write(json.dumps(answer.as_json()) + "\n")
        return
    _print_end(answer, wav if len(answer.samples) else None)


def _inputs(text: str, system: str | None) -> dict[str, Tree]:
    messages: list[Tree] = [] if system is None else [{"role": "system", "content": system}]
    return {"messages": [*messages, {"role": "user", "content": text}]}


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{file}: {error.strerror}") from error


def _params(written: list[str] | tuple[str, ...]) -> dict[str, Tree]:
    params: dict[str, Tree] = {}
    for item in written:
        name, equals, value = item.partition("=")
        if not equals:
            raise typer.BadParameter(f"'{item}' is no NAME=VALUE", param_hint="--param")
        try:
            params[name] = json.loads(value)
        except json.JSONDecodeError:
            params[name] = value
    return params


def _print_end(answer: ChatAnswer, wav: Path | None) -> None:
    if wav is not None:
        answer.audio().to_wav(wav)
    parts = [f"first token after {answer.first_text:.2f} s"] if answer.first_text else []
    if wav is not None:
        parts.append(f"first sound after {answer.first_audio:.2f} s")
        parts.append(f"{answer.audio().seconds:.1f} s of speech in {wav}")
    sys.stdout.write(f"\n\n({', '.join(parts) or 'neither text nor speech came'})\n")
