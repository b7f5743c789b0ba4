# cython: annotation_typing=False
"""JSON logs on stderr, one object a line, with the request id of the call at hand.

Libraries call `logging.getLogger(__name__)`; only `main` modules configure. The text of foreign exceptions may quote
input, so `describe` is what goes into a log line, never the exception itself.

`logs.pxd` gives the types with which this very file is compiled.
"""

import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, TextIO

import orjson

request_id: ContextVar[str] = ContextVar("ssop_request_id", default="")
"""Id of the request that the current task serves; empty outside of one."""

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_encode_at_leisure: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
_MILLISECONDS: Final = tuple(f"{number:03d}" for number in range(1000))
_encode_at_once: Final = orjson.dumps
_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
FIELDS: Final = "fields"
"""The key of `extra` under which many fields cost less than each on its own: a dict that is merged into the line."""
FLUSH_S: Final = 0.05
"""How long a line below `warning` may wait for others to be written with."""
_MOST_LINES: Final = 10_000


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; fields given by `extra` stand beside the standard ones."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service
        self._second = (-1, "")
        self._heads: dict[tuple[str, str], str] = {}

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON, UTF-8, without line breaks inside."""
        fields: dict[str, Any] = {
            "time": f"{self._name_second(int(record.created))}.{_MILLISECONDS[int(record.msecs)]}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current := request_id.get():
            fields["request_id"] = current
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if many := fields.pop(FIELDS, None):
            fields.update(many)
        if record.exc_info and record.exc_info[1] is not None:
            fields["cause"] = describe(record.exc_info[1])
        return _encode(fields)

    def format_members(self, logger: str, message: str, members: str) -> str:
        """The line of `note`, of this moment: what all of its kind begin with, and its members."""
        kind = (logger, message)
        head = self._heads.get(kind)
        if head is None:
            head = self._heads[kind] = encode_members(
                {"level": "info", "service": self._service, "logger": logger, "message": message}
            )
        at_ms = time.time_ns() // 1_000_000
        time_name = f"{self._name_second(at_ms // 1000)}.{_MILLISECONDS[at_ms % 1000]}Z"
        return f'{{"time":"{time_name}",{head}{"," if members else ""}{members}}}'

    def _name_second(self, second: int) -> str:
        known, name = self._second
        if known != second:
            name = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = (second, name)
        return name


def _encode(fields: Mapping[str, Any]) -> str:
    """A line for each request is worth a tenth of the time that the library's own encoder takes.

    That one takes what orjson leaves: keys that are no text, integers beyond 64 bits, and text that is no Unicode.
    """
    try:
        return _encode_at_once(fields, default=_simplify, option=_OPTIONS).decode()
    except TypeError:
        return _encode_at_leisure(fields)


def _simplify(value: Any) -> Any:
    """What stands for what orjson does not know: numbers and tuples of other kinds are what they are for JSON."""
    if isinstance(value, float):
        return float(value)
    return list(value) if isinstance(value, tuple) else str(value)


def encode_members(fields: Mapping[str, Any]) -> str:
    """Fields as members of a JSON object, without its braces. Raises ValueError for what is within itself."""
    return _encode(fields)[1:-1]


class BatchingHandler(logging.Handler):
    """Writes lines together, from a thread, so that no request waits for a write; warnings and worse at once.

    At most 10,000 lines wait. What comes beyond is dropped, and a line says how many were.
    """

    def __init__(self, stream: TextIO, formatter: JsonFormatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.json: Final = formatter
        self._stream = stream
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._is_due = threading.Event()
        self._writing = threading.Lock()
        threading.Thread(target=self._run, name="ssop-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler of the standard library
            self.handleError(record)
            return
        self.take(line)
        if record.levelno >= logging.WARNING:
            self.flush()

    def take(self, line: str) -> None:
        """A line, to be written with others."""
        if len(self._lines) >= _MOST_LINES:
            self._dropped += 1
            return
        self._lines.append(line)
        if not self._is_due.is_set():
            self._is_due.set()

    def flush(self) -> None:
        """Write what waits."""
        with self._writing:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            dropped, self._dropped = self._dropped, 0
            if dropped:
                told = {"message": "log lines were dropped: nobody took them in time", "dropped": dropped}
                lines.append(_encode({"level": "warning", "logger": __name__, **told}))
            if lines:
                try:
                    self._stream.write("\n".join(lines) + "\n")
                    self._stream.flush()
                except (OSError, ValueError):
                    # Nobody reads what is said any more; there is nowhere to say so.
                    pass

    def close(self) -> None:
        """See logging.Handler."""
        self.flush()
        super().close()

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            time.sleep(FLUSH_S)
            self._is_due.clear()
            self.flush()


def describe(error: BaseException) -> str:
    """Type and place of an exception and of its causes, without their texts."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 4:
        where = " < ".join(reversed(_find_places(current.__traceback__)))
        parts.append(f"{type(current).__qualname__} at {where or 'unknown'}")
        current = current.__cause__
    return " because of ".join(parts)


def _find_places(trace: TracebackType | None) -> list[str]:
    """The last four. The library's own extraction reads the sources, to quote them."""
    last: deque[TracebackType] = deque(maxlen=4)
    while trace is not None:
        last.append(trace)
        trace = trace.tb_next
    return [f"{one.tb_frame.f_code.co_filename}:{one.tb_lineno} {one.tb_frame.f_code.co_name}" for one in last]


def note(logger: logging.Logger, message: str, members: str) -> None:
    """Log many fields at level `info`, which the logger is known to take, for less than `logger.info` with FIELDS.

    `members` are theirs as `encode_members` has them, so that what many lines share is encoded once, joined by commas;
    they name the request, where there is one, and nothing else that each line begins with (time, level, service,
    logger, message). `message` is one of few.
    """
    handlers = logging.root.handlers
    if len(handlers) == 1 and isinstance(handler := handlers[0], BatchingHandler):
        handler.take(handler.json.format_members(logger.name, message, members))
    else:
        logger.info(message, extra={FIELDS: json.loads(f"{{{members}}}")})


def set_level(level: str) -> None:
    """Log from `level` on."""
    logging.getLogger().setLevel(level.upper())


def configure(service: str, level: str) -> None:
    """Send the process's logs to stderr at `level` (debug, info, warning, error). Called once, by `main`."""
    # What no line shows is not looked for ("Optimization" in the logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - named there
    handler = BatchingHandler(sys.stderr, JsonFormatter(service))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
