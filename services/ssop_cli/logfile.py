"""Log files of bounded size: two files of `max_bytes` at most, turned at line ends."""

from pathlib import Path
from typing import Final

MAX_BYTES: Final = 4_194_304
TAIL_BYTES: Final = 16_384


class LogFile:
    """Appends bytes; when the file is full it becomes FILE.1, and the earlier FILE.1 goes."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file = path.open("ab", buffering=0)
        self._size_bytes = path.stat().st_size

    def write(self, data: bytes) -> None:
        """Append; turns the file first if the data would not fit."""
        while data:
            room = self._max_bytes - self._size_bytes
            if len(data) <= room:
                self._append(data)
                return
            end = data.rfind(b"\n", 0, max(room, 0)) + 1
            if end == 0 and self._size_bytes == 0:
                end = self._max_bytes
            if end:
                self._append(data[:end])
            data = data[end:]
            self._turn()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._size_bytes += len(data)

    def _turn(self) -> None:
        self._file.close()
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._file = self._path.open("ab", buffering=0)
        self._size_bytes = 0


def read_tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log, as far as its last 16 KiB hold them; none if there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]
