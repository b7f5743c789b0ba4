"""Connections that are silent while calls run on them: they have to answer a ping, or are dropped."""

from collections.abc import Iterable
from typing import Final

from ssop_transport._connection import Connection

TICK_S: Final = 1.0
"""Between two looks. Silence is counted in looks and not in seconds, so that a loop that was held up blames nobody."""
_PING_AFTER_TICKS: Final = 5
_LOST_AFTER_TICKS: Final = 8


class Silence:
    """What one side knows of its connections."""

    __slots__ = ("_ticks",)

    def __init__(self) -> None:
        self._ticks: dict[Connection, tuple[float, int]] = {}

    def look(self, connections: Iterable[Connection]) -> None:
        """Once for each tick: count, ping and drop. Connections that are not named are forgotten."""
        before, self._ticks = self._ticks, {}
        for connection in connections:
            heard_s, ticks = before.get(connection, (0.0, 0))
            is_silent = connection.stream_count > 0 and connection.heard_s == heard_s
            self._ticks[connection] = (connection.heard_s, ticks + 1 if is_silent else 0)
        for connection, (_, ticks) in tuple(self._ticks.items()):
            if ticks >= _LOST_AFTER_TICKS:
                connection.abort()
            elif ticks == _PING_AFTER_TICKS:
                connection.ping()

    def ticks(self, connection: Connection) -> int:
        """For how many looks it has been silent."""
        return self._ticks.get(connection, (0.0, 0))[1]
