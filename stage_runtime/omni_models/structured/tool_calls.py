"""Calls of tools, found in a growing answer by SGLang's parser for the model's format."""

from __future__ import annotations

import importlib
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omni_models.structured.wishes import Tool
from omni_wire.errors import StageFailed

if TYPE_CHECKING:
    from sglang.srt.function_call.core_types import ToolCallItem
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

_PARSERS = "sglang.srt.function_call.function_call_parser"


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of one call.

    Attributes:
        index: which call of the answer it belongs to, from 0.
        id, name: in its first piece only.
        arguments: the next piece of its arguments' JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class ToolCallReader:
    """Takes an answer apart into text and calls."""

    def __init__(self, parser: FunctionCallParser) -> None:
        self._parser = parser
        self._ids: dict[int, str] = {}
        self._blank = ""

    @property
    def called(self) -> bool:
        """Whether a call has begun."""
        return bool(self._ids)

    def add(self, text: str) -> tuple[str, list[CallDelta]]:
        """Take the next piece of the answer; return what of it is text, and pieces of calls."""
        shown, calls = "", list[CallDelta]()
        for piece in self._pieces(text):
            # The parser tells one thing at a time: a call's name, then what came of its arguments.
            more, items = self._parser.parse_stream_chunk(piece)
            while True:
                shown += self._text(more)
                calls += map(self._delta, items)
                if not items:
                    break
                more, items = self._parser.parse_stream_chunk("")
        return shown, calls

    def end(self) -> tuple[str, list[CallDelta]]:
        """Return what was held back, as nothing follows; a call that is cut off stays so."""
        shown, items = self._parser.parse_stream_end()
        detector = self._parser.detector
        rest = detector._buffer
        if not detector.has_tool_call(rest):
            # It was waiting for a call to begin, or follows the last one.
            shown += rest.replace(detector.eot_token, "")
        return self._text(shown), list(map(self._delta, items))

    def _pieces(self, text: str) -> list[str]:
        """Cut text wherever a call may begin: parsers lose what stands before it in one piece."""
        begin = self._parser.detector.bot_token[:1]
        return re.split(f"(?={re.escape(begin)})", text) if begin else [text]

    def _delta(self, item: ToolCallItem) -> CallDelta:
        index = item.tool_index
        if index in self._ids:
            return CallDelta(index, arguments=item.parameters)
        self._ids[index] = f"call_{secrets.token_hex(12)}"
        return CallDelta(index, self._ids[index], item.name or "", item.parameters)

    def _text(self, text: str) -> str:
        """Return text without the blanks between calls."""
        if not self.called:
            return text
        text = self._blank + text
        self._blank = "" if text.strip() else text
        return text if text.strip() else ""


class ToolParsers:
    """Makes readers for one format.

    SGLang's parsers take seconds to import, with torch behind them. That happens aside, once the
    first request with tools comes, so that neither the start nor any other answer waits for it.

    Args:
        name: of the format.

    Attributes:
        when_loaded: called, from another thread, once the parsers are there.
    """

    def __init__(self, name: str) -> None:
        self.when_loaded: Callable[[], None] = lambda: None
        self._name = name
        self._loading: threading.Thread | None = None
        self._failure: str | None = None
        self._ready = threading.Event()

    def ready(self) -> bool:
        """Return whether a reader can be made at once; begin to load the parsers if not."""
        if self._loading is None:
            self._loading = threading.Thread(target=self._load, name="tool-parsers", daemon=True)
            self._loading.start()
        return self._ready.is_set()

    def reader(self, tools: Sequence[Tool]) -> ToolCallReader:
        """Return what reads one answer.

        Raises:
            StageFailed: SGLang has no such parser here.
        """
        if self._failure is not None:
            raise StageFailed(self._failure)
        module = importlib.import_module(_PARSERS)
        return ToolCallReader(module.FunctionCallParser(list(_sglang(tools)), self._name))

    def _load(self) -> None:
        try:
            importlib.import_module(_PARSERS)
        except ImportError as error:
            self._failure = f"SGLang's parsers of tool calls cannot be imported: {error}"
        self._ready.set()
        self.when_loaded()


def _sglang(tools: Sequence[Tool]) -> Iterator[object]:
    from sglang.srt.entrypoints.openai.protocol import Tool as Declared

    return (Declared.model_validate(tool.templated()) for tool in tools)
