"""JSON logs on stderr, one object a line, with the request id of the call at hand.

Libraries call `logging.getLogger(__name__)`; only `main` modules configure. The text of foreign exceptions may quote
input, so `describe` is what goes into a log line, never the exception itself.
"""

import json
import logging
import sys
import time
import traceback
from contextvars import ContextVar
from typing import Any, Final

request_id: ContextVar[str] = ContextVar("ssop_request_id", default="")
"""Id of the request that the current task serves; empty outside of one."""

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; fields given by `extra` stand beside the standard ones."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON, UTF-8, without line breaks inside."""
        moment = time.gmtime(record.created)
        fields: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current := request_id.get():
            fields["request_id"] = current
        fields.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        if record.exc_info and record.exc_info[1] is not None:
            fields["cause"] = describe(record.exc_info[1])
        return json.dumps(fields, ensure_ascii=False, default=str)


def describe(error: BaseException) -> str:
    """Type and place of an exception and of its causes, without their texts."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 4:
        frames = traceback.extract_tb(current.__traceback__)[-4:]
        where = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        parts.append(f"{type(current).__qualname__} at {where or 'unknown'}")
        current = current.__cause__
    return " because of ".join(parts)


def set_level(level: str) -> None:
    """Log from `level` on."""
    logging.getLogger().setLevel(level.upper())


def configure(service: str, level: str) -> None:
    """Send the process's logs to stderr at `level` (debug, info, warning, error). Called once, by `main`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
