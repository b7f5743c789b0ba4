"""Requests begun in a closed loop or when they are due, and what they took. One event loop, no task for a request.

An open loop measures from the moment at which a request was due, so that a request that could not be begun in time
counts as a late answer (coordinated omission). Its clock is a timerfd: timers of uvloop have whole milliseconds.
"""

import asyncio
import ctypes
import os
import struct
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from helpers.load_figures import LoadOrder, LoadResult, is_saturated, others_share, percentile

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_DRAIN_S: Final = 30.0
_LEAST_TICK_S: Final = 0.0001
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC: Final = 1
OnDone = Callable[["Answer"], None]


class Answer:
    """What came of one request. `first_s` is when its first message came, `fault` is empty where it is whole."""

    __slots__ = ("due_s", "fault", "first_s", "flaw", "messages", "size_bytes")

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.first_s = 0.0
        self.messages = 0
        self.size_bytes = 0
        self.fault = ""
        self.flaw: str | None = None
        """What a reading of the whole answer found; None where it was not read."""


class Asker(Protocol):
    """A client that has its connections."""

    def ask(self, number: int, due_s: float, on_done: OnDone) -> None:
        """Begin one request; `on_done` is called in a later turn of the loop. Raises ConnectionError."""
        ...


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its threads, user and system; 0 of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 of one that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def machine_ticks() -> tuple[int, int, int]:
    """All ticks of all cores since boot, those that were not idle, and those stolen by the host (proc(5))."""
    fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), sum(fields) - fields[3] - fields[4], fields[7]


class Timer:
    """Calls back at a steady interval."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval_s: float, call: Callable[[], None]) -> None:
        self._loop, self._call = loop, call
        self._fd = int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        seconds, rest = divmod(interval_s, 1)
        spec = struct.pack("@4q", *(int(seconds), max(1, int(rest * 1e9))) * 2)
        if _LIBC.timerfd_settime(self._fd, 0, spec, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        loop.add_reader(self._fd, self._fire)

    def _fire(self) -> None:
        os.read(self._fd, 8)
        self._call()

    def stop(self) -> None:
        """Never again."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class Pace:
    """One run of an order."""

    def __init__(self, order: LoadOrder, asker: Asker) -> None:
        self._order = order
        self._asker = asker
        self._over = asyncio.Event()
        self._timer: Timer | None = None
        self._took_s, self._first_s, self._late_s = array("d"), array("d"), array("d")
        self._faults: Counter[str] = Counter()
        self._flaws: Counter[str] = Counter()
        self._due = self._sent = self._in_flight = 0
        self._done = self._window_done = self._checked = self._messages = self._bytes = 0
        self._origin_s = self._begin_s = self._end_s = 0.0
        self._is_stopped = self._is_too_much = False
        self._samples: list[tuple[int, dict[str, int]]] = []
        self._before: Mapping[str, float] = {}
        self._after: Mapping[str, float] = {}
        self._ticks = [(0, 0, 0), (0, 0, 0)]
        self._window_end_s = 0.0

    async def run(self) -> LoadResult:
        """Until every request that was begun is over, or has had its time."""
        order, loop = self._order, asyncio.get_running_loop()
        self._origin_s = time.perf_counter()
        self._begin_s = self._origin_s + order.warm_s
        self._end_s = self._begin_s + order.seconds
        tasks = [loop.create_task(self._watch())]
        if order.sample_s:
            tasks.append(loop.create_task(self._sample()))
        if order.rate:
            self._timer = Timer(loop, max(_LEAST_TICK_S, 1 / order.rate), self._tick)
        else:
            for _ in range(order.width):
                self._start(time.perf_counter())
        try:
            await self._over.wait()
        finally:
            if self._timer is not None:
                self._timer.stop()
            for task in tasks:
                task.cancel()
        return self._result()

    # --- requests

    def _tick(self) -> None:
        """Begin what is due."""
        interval_s, now_s = 1 / self._order.rate, time.perf_counter()
        while not self._is_stopped:
            due_s = self._origin_s + self._due * interval_s
            if due_s > now_s:
                return
            if due_s >= self._end_s:
                self._stop()
                return
            self._due += 1
            if self._in_flight >= self._order.max_in_flight:
                # From here on it is a closed loop: its rate and its CPU mean something, its latencies don't.
                self._is_too_much = True
                continue
            if due_s >= self._begin_s:
                self._late_s.append(now_s - due_s)
            self._start(due_s)

    def _start(self, due_s: float) -> None:
        self._sent += 1
        self._in_flight += 1
        try:
            self._asker.ask(self._sent, due_s, self._take)
        except ConnectionError:
            self._in_flight -= 1
            self._faults["connection lost"] += 1
            self._stop()

    def _take(self, answer: Answer) -> None:
        now_s = time.perf_counter()
        self._in_flight -= 1
        self._done += 1
        if answer.fault:
            self._faults[answer.fault] += 1
        else:
            if self._begin_s <= now_s < self._end_s:
                self._window_done += 1
            if answer.due_s >= self._begin_s:
                self._took_s.append(now_s - answer.due_s)
                self._first_s.append(answer.first_s - answer.due_s)
            self._messages += answer.messages
            self._bytes += answer.size_bytes
            if answer.flaw is not None:
                self._checked += 1
                if answer.flaw:
                    self._flaws[answer.flaw] += 1
        if not self._order.rate and not self._is_stopped:
            if now_s < self._end_s and (not self._order.count or self._sent < self._order.count):
                self._start(now_s)
            else:
                self._stop()
        if self._is_stopped and not self._in_flight:
            self._over.set()

    def _stop(self) -> None:
        """Begin no more."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._close_window()
        if self._timer is not None:
            self._timer.stop()
        if not self._in_flight:
            self._over.set()

    # --- what is measured

    async def _watch(self) -> None:
        """Open the window, and end what does not end."""
        await asyncio.sleep(self._order.warm_s)
        self._before, self._ticks[0] = self._read_cpu(), machine_ticks()
        self._begin_s = time.perf_counter()
        self._end_s = self._begin_s + self._order.seconds
        await asyncio.sleep(self._order.seconds + 0.5)
        self._stop()
        await asyncio.sleep(_DRAIN_S)
        self._faults["no end"] += self._in_flight
        self._over.set()

    async def _sample(self) -> None:
        while True:
            self._samples.append((self._done, {name: rss_bytes(pid) for name, pid in self._order.pids.items()}))
            await asyncio.sleep(self._order.sample_s)

    def _close_window(self) -> None:
        self._window_end_s = time.perf_counter()
        self._after, self._ticks[1] = self._read_cpu(), machine_ticks()

    def _read_cpu(self) -> dict[str, float]:
        return {**{name: cpu_s(pid) for name, pid in self._order.pids.items()}, "client": time.process_time()}

    def _result(self) -> LoadResult:
        order = self._order
        whole = max(1, self._done - sum(self._faults.values()))
        count = max(1, self._window_done)
        window_s = self._window_end_s - self._begin_s
        rate = self._window_done / max(window_s, 1e-9)
        ticks = [after - before for before, after in zip(*self._ticks, strict=True)]
        busy_share = ticks[1] / max(1, ticks[0])
        cpu_us = {name: 1e6 * (self._after[name] - self._before[name]) / count for name in self._before}
        took, first, late = sorted(self._took_s), sorted(self._first_s), sorted(self._late_s)
        return LoadResult(
            rate=rate,
            done=self._done,
            faults=dict(self._faults),
            checked=self._checked,
            flaws=dict(self._flaws),
            p50_ms=1000 * percentile(took, 0.5),
            p99_ms=1000 * percentile(took, 0.99),
            p999_ms=1000 * percentile(took, 0.999),
            max_ms=1000 * percentile(took, 1),
            first_p50_ms=1000 * percentile(first, 0.5),
            late_p99_ms=1000 * percentile(late, 0.99),
            messages=self._messages / whole,
            answer_bytes=self._bytes / whole,
            cpu_us=cpu_us,
            client_share=cpu_us.get("client", 0.0) * count / 1e6 / max(window_s, 1e-9),
            busy_share=busy_share,
            others_share=others_share(busy_share, sum(cpu_us.values()) * count / 1e6, window_s, os.cpu_count() or 1),
            steal_share=ticks[2] / max(1, ticks[0]),
            is_saturated=self._is_too_much or is_saturated(order.rate, rate),
            samples=self._samples,
        )
