"""Wires: proxies between the services of a drill's mesh, which pass bytes on until they are told to harm them."""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from ssop_cli.drill.http2 import CANCEL, INTERNAL_ERROR, Cutter, Garbler, Kind, WireFrame, rst_stream, window_update

SLOW_S: Final = 1.5
"""How late a slow node's bytes are. Below the 2 s after which gRPC takes a peer whose ping is not answered for dead."""
_CUT_AFTER: Final = (1, 2, 3)
"""A stream that is cut or stalls has given so many DATA frames; with one there is no field yet, with more there is."""
_CUT_S: Final = 0.02
"""gRPC drops what has come and was not read yet when a stream is reset; so long it has to read."""
_READ_BYTES: Final = 65_536
_QUEUE_FRAMES: Final = 1_024
_CONNECT_S: Final = 5.0
_log = logging.getLogger(__name__)


class Mode(StrEnum):
    """What a wire does to what comes from its far end; calls that ran before are spared by FAIL, CUT and STALL."""

    PASS = "pass"  # noqa: S105 - no password
    SLOW = "slow"
    FAIL = "fail"
    """Every call is reset at once."""
    GARBLE = "garble"
    """Every message is overwritten."""
    CUT = "cut"
    """Every call is reset after some of its answer."""
    STALL = "stall"
    """Nothing more comes of any call after some of its answer."""
    DARK = "dark"
    """Nothing passes, in either direction, and no connection is closed: a cable that was pulled."""


class Wire:
    """One proxy, from the socket `near` to the socket `far`. `mode` may be changed from any thread."""

    def __init__(self, near: Path, far: Path, seed: int = 0) -> None:
        self.near = near
        self.far = far
        self.mode = Mode.PASS
        self.harmed = 0
        """Frames and calls that were harmed since the start; only the loop writes it."""
        self._rng = random.Random(f"{seed} {near.name}")  # noqa: S311 - chance of a test
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._accept, self.near)

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def lit(self) -> None:
        """Return once bytes may pass."""
        # Another thread changes the mode, so there is no event to wait for.
        while self.mode is Mode.DARK:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def harm(self) -> None:
        """Count one."""
        self.harmed += 1

    def choose_cut(self) -> int:
        """How many DATA frames a stream gives."""
        return self._rng.choice(_CUT_AFTER)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                await self.lit()
                async with asyncio.timeout(_CONNECT_S):
                    far_reader, far_writer = await asyncio.open_unix_connection(self.far)
            except (OSError, TimeoutError):
                return
            with contextlib.closing(far_writer):
                await _Line(self, (reader, writer), (far_reader, far_writer)).run()


_End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Outlet:
    """Writes frames in their order, each not before its time."""

    def __init__(self, wire: Wire, writer: asyncio.StreamWriter) -> None:
        self._wire = wire
        self._writer = writer
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUE_FRAMES)

    async def put(self, data: bytes, delay_s: float = 0.0) -> None:
        """Have bytes written."""
        await self._queue.put((asyncio.get_running_loop().time() + delay_s, data))

    async def run(self) -> None:
        """Write until the connection ends."""
        loop = asyncio.get_running_loop()
        while True:
            due_s, data = await self._queue.get()
            if (wait_s := due_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            await self._wire.lit()
            self._writer.write(data)
            await self._writer.drain()


class _Line:
    """One connection through a wire."""

    def __init__(self, wire: Wire, near: _End, far: _End) -> None:
        self._wire = wire
        self._near_reader, self._far_reader = near[0], far[0]
        self._to_near, self._to_far = _Outlet(wire, near[1]), _Outlet(wire, far[1])
        self._garbler = Garbler()
        self._last_stream = 0
        self._fails: set[int] = set()
        self._left: dict[int, int] = {}
        """DATA frames that a stream may still give before it is cut or stalls."""
        self._dead: set[int] = set()
        """Streams of which nothing but header blocks passes any more."""

    async def run(self) -> None:
        """Pass frames on until either end closes."""
        work = [self._pump_near(), self._pump_far(), self._to_near.run(), self._to_far.run()]
        tasks = [asyncio.ensure_future(one) for one in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for found in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(found, Exception) and not isinstance(found, OSError):
                    _log.error("a wire broke", exc_info=found)

    async def _pump_near(self) -> None:
        cutter = Cutter(has_preface=True)
        while data := await self._near_reader.read(_READ_BYTES):
            for frame in cutter.feed(data):
                await self._to_far.put(frame.data)
                await self._take_call(frame)

    async def _take_call(self, frame: WireFrame) -> None:
        """Look whether a frame from the near end begins a call, and what is to become of that."""
        mode = self._wire.mode
        if frame.kind == Kind.HEADERS and frame.stream > self._last_stream:
            self._last_stream = frame.stream
            if mode is Mode.FAIL:
                self._fails.add(frame.stream)
            elif mode in {Mode.CUT, Mode.STALL}:
                self._left[frame.stream] = self._wire.choose_cut()
        if frame.ends_headers and frame.stream in self._fails:
            self._fails.discard(frame.stream)
            await self._kill(frame.stream)

    async def _kill(self, stream: int, *, is_told: bool = True) -> None:
        """Let nothing more of a stream pass; the near end hears of it unless it is to wait in vain."""
        self._wire.harm()
        self._dead.add(stream)
        await self._to_far.put(rst_stream(stream, CANCEL))
        if is_told:
            await self._to_near.put(rst_stream(stream, INTERNAL_ERROR), _CUT_S)

    async def _pump_far(self) -> None:
        cutter = Cutter(has_preface=False)
        while data := await self._far_reader.read(_READ_BYTES):
            for frame in cutter.feed(data):
                await self._answer(frame)

    async def _answer(self, frame: WireFrame) -> None:
        """Pass a frame from the far end on, as the mode says."""
        mode = self._wire.mode
        if frame.stream in self._dead and frame.kind in {Kind.DATA, Kind.RST_STREAM}:
            if frame.kind == Kind.DATA and frame.payload_bytes:
                await self._to_far.put(window_update(frame.payload_bytes))
            return
        if mode is Mode.GARBLE and frame.kind == Kind.DATA:
            self._wire.harm()
            await self._to_near.put(self._garbler.garble(frame))
            return
        if mode is Mode.SLOW:
            self._wire.harm()
        await self._to_near.put(frame.data, SLOW_S if mode is Mode.SLOW else 0.0)
        if frame.kind == Kind.DATA and frame.stream in self._left:
            self._left[frame.stream] -= 1
            if not self._left[frame.stream]:
                del self._left[frame.stream]
                if mode in {Mode.CUT, Mode.STALL}:
                    await self._kill(frame.stream, is_told=mode is Mode.CUT)
        if frame.ends_stream:
            self._left.pop(frame.stream, None)


@contextlib.contextmanager
def run_wires(folder: Path, ends: Mapping[str, Path], seed: int = 0) -> Iterator[dict[str, Wire]]:
    """A wire to each of the sockets, by name, at `folder/NAME.sock`; on a loop in a thread until the block ends."""
    wires = {name: Wire(folder / f"{name}.sock", far, seed) for name, far in ends.items()}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="drill-wires", daemon=True)
    thread.start()

    def do(work: "asyncio.Future[object] | object") -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(30.0)  # type: ignore[arg-type]

    try:
        for wire in wires.values():
            do(wire.start())
        yield wires
    finally:
        for wire in wires.values():
            do(wire.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10.0)
        loop.close()
