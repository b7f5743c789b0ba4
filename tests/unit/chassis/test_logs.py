"""Log lines that travel together."""

import io
import json
import logging
import threading
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
    token = logs.request_id.set("one")
    fields = {"number": 1, "names": ("a", "b"), "nothing": None}
    alone.info("a line", extra={logs.FIELDS: fields})
    logs.note(alone, "a line", fields)
    logs.request_id.reset(token)
    alone.handlers[0].close()
    by_logger, noted = stream.lines
    assert by_logger.pop("time")[:10] == noted.pop("time")[:10]
    assert noted == by_logger
    assert noted["request_id"] == "one"


def test_what_is_noted_stays_in_order(stream: _Stream, listen_alone: Callable[[], logging.Logger]) -> None:
    alone = listen_alone()
    logs.note(alone, "first", {})
    alone.info("second")
    logs.note(alone, "third", {})
    alone.warning("fourth")
    assert [line["message"] for line in stream.lines] == ["first", "second", "third", "fourth"]


def test_what_is_noted_below_the_level_is_no_line(stream: _Stream, listen_alone: Callable[[], logging.Logger]) -> None:
    alone = listen_alone()
    alone.setLevel(logging.WARNING)
    logs.note(alone, "unheard", {})
    alone.handlers[0].close()
    assert stream.lines == []


def test_a_line_that_can_not_be_made_costs_no_other(
    stream: _Stream, listen_alone: Callable[[], logging.Logger]
) -> None:
    alone = listen_alone()
    circle: dict[str, Any] = {}
    circle["self"] = circle
    logs.note(alone, "broken", circle)
    logs.note(alone, "whole", {})
    alone.handlers[0].close()
    assert [line["message"] for line in stream.lines] == ["a log line could not be made", "whole"]


def test_where_others_listen_too_all_hear_what_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ssop.test"):
        logs.note(logging.getLogger("ssop.test"), "heard", {"number": 1})
    assert [(record.getMessage(), vars(record)[logs.FIELDS]) for record in caplog.records] == [("heard", {"number": 1})]


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
    line = JsonFormatter("test").format_event(logs.Event(1.5, "a", "said", "", {"value": value}))
    assert len(line.splitlines()) == 1 or "\u2028" in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "info",
        "service": "test",
        "logger": "a",
        "message": "said",
        "value": shown,
    }


def test_the_id_that_a_line_names_stands_for_that_of_its_task() -> None:
    line = JsonFormatter("test").format_event(logs.Event(1.5, "a", "said", "of the task", {"request_id": "its own"}))
    assert [value for name, value in json.loads(line, object_pairs_hook=list) if name == "request_id"] == ["its own"]


def test_an_event_without_fields_is_a_line() -> None:
    line = JsonFormatter("test").format_event(logs.Event(1.5, "a", "said", "", {}))
    assert json.loads(line)["message"] == "said"
