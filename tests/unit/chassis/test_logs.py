"""Log lines that travel together."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.eventually import eventually
from ssop_chassis import logs
from ssop_chassis.logs import BatchingHandler, JsonFormatter


class _Stream(io.StringIO):
    """Counts writes; none ends before `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.gate = threading.Event()
        self.gate.set()

    def write(self, text: str) -> int:
        self.writes += 1
        self.gate.wait(60)
        return super().write(text)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def stream() -> _Stream:
    return _Stream()


@pytest.fixture
def logger(stream: _Stream) -> Iterator[logging.Logger]:
    handler = BatchingHandler(stream)
    handler.setFormatter(JsonFormatter("test"))
    logger = logging.Logger("test", logging.INFO)  # noqa: LOG001 - one that no other test sees
    logger.addHandler(handler)
    yield logger
    stream.gate.set()
    handler.close()


async def test_lines_are_written_in_order_and_together(stream: _Stream, logger: logging.Logger) -> None:
    stream.gate.clear()
    for number in range(100):
        logger.info("a line", extra={"number": number})
    stream.gate.set()
    await eventually(lambda: len(stream.lines) == 100)
    assert [line["number"] for line in stream.lines] == list(range(100))
    assert stream.writes <= 2


def test_a_warning_takes_what_waits_along_at_once(stream: _Stream, logger: logging.Logger) -> None:
    logger.info("before")
    logger.warning("now")
    assert [line["message"] for line in stream.lines] == ["before", "now"]


def test_closing_writes_what_waits(stream: _Stream, logger: logging.Logger) -> None:
    logger.info("last words")
    logger.handlers[0].close()
    assert [line["message"] for line in stream.lines] == ["last words"]


async def test_lines_beyond_the_bound_are_dropped_and_counted(
    stream: _Stream, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_MOST_LINES", 10)
    stream.gate.clear()
    logger.info("is being written")
    await eventually(lambda: stream.writes == 1)
    for _ in range(25):
        logger.info("more")
    stream.gate.set()
    await eventually(lambda: any("dropped" in line for line in stream.lines))
    assert next(line["dropped"] for line in stream.lines if "dropped" in line) == 15


def test_a_stream_that_nobody_reads_ends_no_caller(stream: _Stream, logger: logging.Logger) -> None:
    stream.close()
    logger.warning("unheard")


def test_time_of_a_line_is_its_own(stream: _Stream, logger: logging.Logger) -> None:
    formatter = JsonFormatter("test")
    first = logging.makeLogRecord({"created": 0.25, "msecs": 250.0, "msg": "a"})
    second = logging.makeLogRecord({"created": 61.5, "msecs": 500.0, "msg": "b"})
    times = [json.loads(formatter.format(record))["time"] for record in (first, second, first)]
    assert times == ["1970-01-01T00:00:00.250Z", "1970-01-01T00:01:01.500Z", "1970-01-01T00:00:00.250Z"]
