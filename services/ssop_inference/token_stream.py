"""The bridge from an engine's thread to the event loop: a bounded buffer of tokens, and a flag to stop."""

import asyncio
import threading
from typing import Final

from ssop_inference.backend import Token

MAX_BUFFERED_TOKENS: Final = 4_096
"""A whole answer, as a rule: a slot costs far more than the memory, so a client that does not read must not hold it."""
# How often a thread that waits for room looks whether the process is going away.
_POLL_S: Final = 0.1


class TokenStream:
    """One generation. `push`, `finish` and `fail` run in the engine's thread, the rest in the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = asyncio.Event()
        self._room = threading.Condition()
        self._tokens: list[Token] = []
        self.is_closed = False
        """No more tokens come than those that nobody has read."""
        self._error: BaseException | None = None
        self.is_cancelled = False
        """Read by the engine's thread; a plain flag, since both sides only ever set it."""

    def push(self, token: Token) -> bool:
        """Hand over a token; waits while the buffer is full. False: the engine should stop."""
        with self._room:
            while len(self._tokens) >= MAX_BUFFERED_TOKENS and not self.should_stop():
                self._room.wait(_POLL_S)
            if self.should_stop():
                return False
            self._tokens.append(token)
            is_first = len(self._tokens) == 1
        return self._notify() if is_first else True

    def should_stop(self) -> bool:
        """Whether nobody wants more: cancelled, or the interpreter is going down while the engine still runs."""
        return self.is_cancelled or not threading.main_thread().is_alive()

    def finish(self, error: BaseException | None = None) -> None:
        """Say that no more tokens come; `error` is raised from `read` after the tokens before it."""
        with self._room:
            self.is_closed = True
            self._error = error
        self._notify()

    def _notify(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:
            # The loop is closed: nobody will ever read.
            self.is_cancelled = True
            return False
        return True

    async def read(self) -> list[Token]:
        """All tokens since the last call; empty at the end. Raises the error given to `finish`."""
        while True:
            with self._room:
                tokens, self._tokens = self._tokens, []
                is_closed, error = self.is_closed, self._error
                self._room.notify()
            if tokens:
                return tokens
            if error is not None:
                raise error
            if is_closed:
                return []
            await self._changed.wait()
            self._changed.clear()

    def cancel(self) -> None:
        """Ask the engine to stop at its next sign of life. Idempotent."""
        self.is_cancelled = True
        with self._room:
            self._room.notify()
