"""Silent connections: pinged, then dropped, and only those on which calls run."""

from typing import Any

import pytest

pytestmark = pytest.mark.needs("native_transport")

PING_AFTER, LOST_AFTER = 5, 8


class Connection:
    """What `Silence` knows of a connection, and what it did to it."""

    def __init__(self) -> None:
        self.stream_count = 1
        self.heard_s = 1.0
        self.done: list[str] = []

    def ping(self) -> None:
        self.done.append("ping")

    def abort(self) -> None:
        self.done.append("abort")


def look(silence: Any, connection: Any, times: int) -> list[str]:
    """What the connection was sent within so many looks after the first, which only sees it."""
    for _ in range(times):
        silence.look([connection])
    return list(connection.done)


@pytest.fixture
def silence() -> Any:
    from ssop_transport.silence import Silence  # noqa: PLC0415 - what may not be built

    return Silence()


def test_connection_that_is_silent_is_pinged_once_and_then_dropped(silence: Any) -> None:
    connection = Connection()
    assert look(silence, connection, PING_AFTER) == []
    assert look(silence, connection, 1) == ["ping"]
    assert look(silence, connection, LOST_AFTER - PING_AFTER) == ["ping", "abort"]


def test_connection_without_calls_may_be_silent(silence: Any) -> None:
    connection = Connection()
    connection.stream_count = 0
    assert look(silence, connection, 3 * LOST_AFTER) == []


def test_connection_that_is_heard_begins_anew(silence: Any) -> None:
    connection = Connection()
    for moment in range(3 * LOST_AFTER):
        connection.heard_s = 1.0 + moment // PING_AFTER
        assert look(silence, connection, 1) == []
    assert silence.ticks(connection) < PING_AFTER


def test_connection_that_is_not_named_is_forgotten(silence: Any) -> None:
    connection = Connection()
    look(silence, connection, PING_AFTER)
    silence.look([])
    assert silence.ticks(connection) == 0
