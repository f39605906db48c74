"""Log lines as an event plus fields, the pipeline among them; text or one JSON object per line.

The runtime has the same shape of lines; it is not imported because an operator carries none of it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class Line:
    """What is logged: an event and its fields. As text it is what any other formatter shows."""

    event: str
    fields: Mapping[str, object]

    def __str__(self) -> str:
        fields = (f"{key}={_quoted(value)}" for key, value in self.fields.items())
        return " ".join((self.event, *fields))


class EventLogger:
    """Logs events with fields; values are written with `str`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        """Log an event that only matters while looking for a fault."""
        self._logger.debug(Line(event, fields))

    def info(self, event: str, **fields: object) -> None:
        """Log an event of normal operation."""
        self._logger.info(Line(event, fields))

    def warning(self, event: str, **fields: object) -> None:
        """Log an event after which the process goes on, but somebody may want to look."""
        self._logger.warning(Line(event, fields))

    def failure(self, event: str, failure: BaseException, **fields: object) -> None:
        """Log a fault of the operator itself, with its traceback."""
        self._logger.error(Line(event, fields), exc_info=failure)


def configure_logging(log_format: LogFormat, level: str = "INFO") -> None:
    """Send every log line of this process to standard error.

    Raises:
        ValueError: `level` is no level of the standard library.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # kopf tells every watch event; what the operator does about it is logged here anyway.
    logging.getLogger("kopf").setLevel(max(root.level, logging.WARNING))


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time_of(record)} {record.levelname} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = record.msg if isinstance(record.msg, Line) else Line(record.getMessage(), {})
        line = {
            "time": _time_of(record),
            "level": record.levelname,
            "event": said.event,
            **{key: str(value) for key, value in said.fields.items()},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    text = str(value)
    plain = text and not any(character.isspace() or character in '"=' for character in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
