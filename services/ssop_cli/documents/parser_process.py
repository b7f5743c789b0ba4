"""Parsing in another process: a document that crashes, hangs or bloats its parser is refused, and the next follows."""

import json
import os
import signal
import subprocess
import sys
import threading
from types import TracebackType
from typing import Final, Self

from ssop_cli.documents.extract import MAX_TEXT_CHARS, Extract, Kind, ReadError

_MAX_REPLY_BYTES: Final = 12 * MAX_TEXT_CHARS + 65_536
"""A character takes at most 12 bytes in JSON."""


class ParserProcess:
    """One process at a time, started when there is something to parse, and again after one was lost.

    `timeout_s` is for one document, `memory_bytes` for the whole process.
    """

    def __init__(self, *, timeout_s: float = 30.0, memory_bytes: int = 2**30) -> None:
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def parse(self, kind: Kind, data: bytes, encoding: str = "") -> Extract:
        """The text of a document. Raises ReadError."""
        process = self._process or self._start()
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(self._timeout_s, give_up)
        timer.start()
        try:
            reply = self._exchange(process, kind, data, encoding)
        except (OSError, ValueError, EOFError):
            raise ReadError(self._explain(process, is_late)) from None
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            timer.join()
        if "error" in reply:
            raise ReadError(reply["error"])
        return Extract(reply["text"], reply["title"], reply["encoding"])

    def _start(self) -> "subprocess.Popen[bytes]":
        # What parses hostile bytes need not know a key.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SSOP_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ssop_cli.documents.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
        return self._process

    def _exchange(self, process: "subprocess.Popen[bytes]", kind: Kind, data: bytes, encoding: str) -> dict[str, str]:
        if process.stdin is None or process.stdout is None:
            raise EOFError
        head = {
            "kind": kind,
            "encoding": encoding,
            "bytes": len(data),
            "timeout_s": self._timeout_s,
            "memory_bytes": self._memory_bytes,
        }
        process.stdin.write(json.dumps(head).encode() + b"\n")
        process.stdin.write(data)
        process.stdin.flush()
        size = int(process.stdout.readline(32) or b"-1")
        if not 0 <= size <= _MAX_REPLY_BYTES:
            raise EOFError
        reply = process.stdout.read(size)
        if len(reply) < size:
            raise EOFError
        found: dict[str, str] = json.loads(reply)
        return found

    def _explain(self, process: "subprocess.Popen[bytes]", is_late: threading.Event) -> str:
        self.close()
        if is_late.is_set() or process.returncode == -signal.SIGXCPU:
            return f"reading it takes longer than {self._timeout_s:g} s"
        if process.returncode < 0:
            return f"its parser ended with {signal.Signals(-process.returncode).name}: too large, or made to do harm"
        return "its parser ended: too large, or made to do harm"
