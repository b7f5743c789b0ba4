"""Log lines that travel together."""

import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
def listen_alone(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> Callable[[], logging.Logger]:
    """Makes the logger's handler the only one of the process: pytest adds others once a test has begun."""

    def listen() -> logging.Logger:
        monkeypatch.setattr(logging.root, "handlers", list(logger.handlers))
        return logger

    return listen


@pytest.fixture
def logger(stream: _Stream) -> Iterator[logging.Logger]:
    handler = BatchingHandler(stream, JsonFormatter("test"))
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


class _Number(float):
    pass


class _Pair(NamedTuple):
    first: int
    second: float


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (_Number(0.5), 0.5),
        ([np.float64(0.5)], [0.5]),
        (_Pair(1, 0.5), [1, 0.5]),
        (_Number("nan"), None),
        (2**70, 2**70),
        ({1: _Pair(1, 0.5)}, {"1": [1, 0.5]}),
        (Path("a"), "a"),
        ({1}, "{1}"),
    ],
)
def test_a_value_of_another_kind_is_what_it_is_for_json(value: object, expected: object) -> None:
    record = logging.makeLogRecord({"created": 1.0, "msg": "a", "value": value})
    assert json.loads(JsonFormatter("test").format(record))["value"] == expected


def test_what_is_noted_is_the_line_that_a_logger_writes(
    stream: _Stream, listen_alone: Callable[[], logging.Logger]
) -> None:
    alone = listen_alone()
    fields = {"request_id": "one", "number": 1, "names": ("a", "b"), "nothing": None}
    token = logs.request_id.set("one")
    alone.info("a line", extra={logs.FIELDS: fields})
    logs.note(alone, "a line", logs.encode_members(fields))
    logs.request_id.reset(token)
    alone.handlers[0].close()
    by_logger, noted = (line.partition(",")[2] for line in stream.getvalue().splitlines())
    assert noted == by_logger


def test_what_is_noted_has_the_time_of_its_noting(
    stream: _Stream, listen_alone: Callable[[], logging.Logger], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = listen_alone()
    monkeypatch.setattr(time, "time_ns", lambda: 61_500_999_999)
    logs.note(alone, "a line", "")
    monkeypatch.undo()
    alone.handlers[0].close()
    assert [line["time"] for line in stream.lines] == ["1970-01-01T00:01:01.500Z"]


def test_what_is_noted_stays_in_order(stream: _Stream, listen_alone: Callable[[], logging.Logger]) -> None:
    alone = listen_alone()
    logs.note(alone, "first", "")
    alone.info("second")
    logs.note(alone, "third", "")
    alone.warning("fourth")
    assert [line["message"] for line in stream.lines] == ["first", "second", "third", "fourth"]


def test_where_others_listen_too_all_hear_what_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ssop.test"):
        logs.note(logging.getLogger("ssop.test"), "heard", '"number":1,"names":["a"]')
    assert [(record.getMessage(), vars(record)[logs.FIELDS]) for record in caplog.records] == [
        ("heard", {"number": 1, "names": ["a"]})
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1, "a"), [1, "a"]),
        (1 << 64, 1 << 64),
        ("\ud800", "\ud800"),
        ({7: "a"}, {"7": "a"}),
        (Path("a/b"), "a/b"),
        ("Ünïcode\n\u2028", "Ünïcode\n\u2028"),
    ],
)
def test_whatever_a_field_holds_its_line_is_json(value: object, shown: object) -> None:
    members = logs.encode_members({"value": value})
    line = JsonFormatter("test").format_members("a", "said", members)
    assert len(line.splitlines()) == 1 or "\u2028" in line
    found = json.loads(line)
    del found["time"]
    assert found == {
        "level": "info",
        "service": "test",
        "logger": "a",
        "message": "said",
        "value": shown,
    }


def test_what_is_noted_without_fields_is_a_line() -> None:
    line = JsonFormatter("test").format_members("a", "said", "")
    assert json.loads(line)["message"] == "said"
