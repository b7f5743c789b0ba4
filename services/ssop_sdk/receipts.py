"""Receipts that wait for the next call, so that frames lost on the way are a number and not a guess."""

import threading
from collections import deque
from typing import Final

from ssop.v1.mesh_pb2 import Receipt

MAX_RECEIPTS: Final = 64
"""As many as one request may carry."""


class ReceiptBook:
    """A bounded list of receipts, safe between threads. The oldest ones go when it is full, and are counted."""

    def __init__(self, capacity: int = MAX_RECEIPTS) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        self._waiting: deque[Receipt] = deque()
        self._dropped = 0

    def add(self, *receipts: Receipt) -> None:
        """Keep receipts for the next call."""
        with self._lock:
            self._waiting.extend(receipts)
            while len(self._waiting) > self._capacity:
                self._waiting.popleft()
                self._dropped += 1

    def take(self) -> list[Receipt]:
        """All receipts that wait; the caller sends them, or adds them again if they could not be sent."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    @property
    def dropped(self) -> int:
        """Receipts that were never sent, because the book was full."""
        return self._dropped

    def __len__(self) -> int:
        return len(self._waiting)
