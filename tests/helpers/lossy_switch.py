"""A switch that loses and delays frames, and cuts ways in one direction: between hosts that are network namespaces.

`python -m helpers.lossy_switch SEED PORT...` passes Ethernet frames between interfaces of its own namespace. Each way
from one port to another has a generator of its own, so that the same seed loses the same frames of a way. Standard
input takes a line of JSON for each change (`Weather`), which is answered by what came of the frames so far. For a
kernel that has no netem.
"""

import heapq
import json
import os
import random
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_EVERY_PROTOCOL: Final = 3
_OUTGOING: Final = 4
_FRAME_BYTES: Final = 65_536
_AT_ONCE: Final = 64
_BUFFER_BYTES: Final = 8 << 20
_MOST_WAITING: Final = 100_000


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to frames. `loss` is a part of 1, `delay_ms` is of one way, give or take `jitter_ms`; nothing passes
    from a port to another that `cuts` names.
    """

    loss: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    cuts: tuple[tuple[str, str], ...] = ()


FAIR: Final = Weather()
ROUGH: Final = Weather(loss=0.05, delay_ms=20.0, jitter_ms=10.0)


class _Switch:
    def __init__(self, seed: str, names: Sequence[str]) -> None:
        self._weather = FAIR
        self._cuts: frozenset[tuple[str, str]] = frozenset()
        self._ports = {self._open(name): name for name in names}
        self._sockets = {name: port for port, name in self._ports.items()}
        self._rng = {(a, b): random.Random(f"{seed} {a} {b}") for a in names for b in names if a != b}
        self._learned: dict[bytes, str] = {}
        self._waiting: list[tuple[float, int, str, bytes]] = []
        self._number = 0
        self._counts: Counter[str] = Counter()

    @staticmethod
    def _open(name: str) -> socket.socket:
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
        port.bind((name, _EVERY_PROTOCOL))
        port.setblocking(False)
        port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        return port

    def run(self) -> None:
        """Until standard input ends."""
        sources: list[Any] = [*self._ports, sys.stdin]
        while True:
            pause_s = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            for source in select.select(sources, [], [], pause_s)[0]:
                if source is sys.stdin:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self._change(json.loads(line))
                else:
                    self._take(source)
            now_s = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now_s:
                _, _, name, frame = heapq.heappop(self._waiting)
                self._send(name, frame)

    def _change(self, told: dict[str, Any]) -> None:
        cuts = tuple((before, after) for before, after in told.pop("cuts"))
        self._weather, self._cuts = Weather(**told, cuts=cuts), frozenset(cuts)
        print(json.dumps(self._counts), flush=True)
        self._counts.clear()

    def _take(self, port: socket.socket) -> None:
        source = self._ports[port]
        for _ in range(_AT_ONCE):
            try:
                frame, origin = port.recvfrom(_FRAME_BYTES)
            except OSError:
                return
            if origin[2] == _OUTGOING:
                continue
            self._learned[frame[6:12]] = source
            target = self._learned.get(frame[:6])
            for name in [target] if target else self._sockets:
                if name != source:
                    self._pass(source, name, frame)

    def _pass(self, source: str, target: str, frame: bytes) -> None:
        rng, weather = self._rng[source, target], self._weather
        is_lost = rng.random() < weather.loss
        delay_s = (weather.delay_ms + rng.uniform(-1, 1) * weather.jitter_ms) / 1000
        if (source, target) in self._cuts:
            self._counts["cut"] += 1
        elif is_lost or len(self._waiting) >= _MOST_WAITING:
            self._counts["lost"] += 1
        elif delay_s <= 0:
            self._send(target, frame)
        else:
            self._number += 1
            heapq.heappush(self._waiting, (time.monotonic() + delay_s, self._number, target, frame))

    def _send(self, name: str, frame: bytes) -> None:
        try:
            self._sockets[name].send(frame)
            self._counts["passed"] += 1
        except OSError:
            # As a wire that is not there, or full.
            self._counts["refused"] += 1


class LossySwitch:
    """The process, from outside."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._weather = FAIR
        self.rough: Counter[str] = Counter()

    def set(self, weather: Weather) -> None:
        """Change what happens to frames. `rough` counts those since the last change, unless none was to be lost then:
        `passed`, `lost`, `cut` and `refused`.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(weather)) + "\n")
        self._process.stdin.flush()
        counts = json.loads(self._process.stdout.readline())
        if self._weather.loss:
            self.rough.update(counts)
        self._weather = weather

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def start_switch(prefix: Sequence[str], seed: int, ports: Sequence[str]) -> LossySwitch:
    """Run a switch behind a command's `prefix`, which enters its namespace."""
    command = [*prefix, sys.executable, "-m", "helpers.lossy_switch", str(seed), *ports]
    tests = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), tests]))
    return LossySwitch(
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, text=True
        )
    )


if __name__ == "__main__":
    _Switch(sys.argv[1], sys.argv[2:]).run()
