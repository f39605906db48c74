"""Log lines as an event plus fields, the request id among them in every line.

`python -m omni_runtime.group` writes to standard error, one line per event, either as `key=value`
text or as JSON. The id is always there, `-` for lines that belong to no request, so that one filter
finds the whole life of a request across processes.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from omni_wire.identity import RequestKey

LogFormat = Literal["text", "json"]

_FIELDS = "omni_fields"
_NO_REQUEST = "-"


class EventLogger:
    """Logs events with fields; values are written with `str`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, request: RequestKey | None = None, **fields: object) -> None:
        """Log an event that only matters while looking for a fault."""
        self._log(logging.DEBUG, event, request, fields)

    def info(self, event: str, request: RequestKey | None = None, **fields: object) -> None:
        """Log an event of normal operation."""
        self._log(logging.INFO, event, request, fields)

    def warning(self, event: str, request: RequestKey | None = None, **fields: object) -> None:
        """Log an event after which the process goes on, but somebody may want to look."""
        self._log(logging.WARNING, event, request, fields)

    def failure(self, event: str, error: BaseException, **fields: object) -> None:
        """Log what somebody else's code raised, with its traceback; the process goes on."""
        self._log(logging.WARNING, event, None, fields, error)

    def error(self, event: str, error: BaseException, **fields: object) -> None:
        """Log a failure of the process itself, with its traceback."""
        self._log(logging.ERROR, event, None, fields, error)

    def _log(
        self,
        level: int,
        event: str,
        request: RequestKey | None,
        fields: dict[str, object],
        error: BaseException | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        shown = {"request": _NO_REQUEST if request is None else str(request), **fields}
        self._logger.log(level, event, extra={_FIELDS: shown}, exc_info=error)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO talker request failed request=… stage=… reason=…`"""

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on lines of its own."""
        fields = " ".join(f"{key}={_quoted(value)}" for key, value in _fields_of(record).items())
        line = f"{_time_of(record)} {record.levelname} {self._group} {record.getMessage()} {fields}"
        if record.exc_info is None:
            return line
        return f"{line}\n{self.formatException(record.exc_info)}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line; the traceback is a field."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": _time_of(record),
            "level": record.levelname,
            "group": self._group,
            "event": record.getMessage(),
            **{key: str(value) for key, value in _fields_of(record).items()},
        }
        if record.exc_info is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(group: str, log_format: LogFormat = "text", level: str = "INFO") -> None:
    """Send every log line of this process to standard error, marked with the name of its group.

    Raises:
        ValueError: `level` is no level of the standard library.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(group) if log_format == "json" else TextFormatter(group))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a line, whoever logged it: libraries know nothing of requests."""
    fields: dict[str, object] = getattr(record, _FIELDS, {"request": _NO_REQUEST})
    return fields


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    text = str(value)
    plain = text and not any(character.isspace() or character in '"=' for character in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
