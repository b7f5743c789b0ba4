"""A wire between a real gRPC client and a real gRPC server: each mode does what it is named after."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from helpers.eventually import eventually
from helpers.machine import stretched
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_peer import GrpcPeer, connect
from ssop_chassis.grpc_server import start_server
from ssop_chassis.identity import Principal
from ssop_cli.drill import wire as wires
from ssop_cli.drill.wire import Mode, Wire

PIECES = 6
PATH = "/test/Count"


async def count(call: Call) -> None:
    """Pieces, some milliseconds apart."""
    for number in range(PIECES):
        await call.write(f"piece {number}".encode())
        await asyncio.sleep(0.02)


@dataclass
class Line:
    """A peer that speaks through a wire."""

    wire: Wire
    peer: GrpcPeer

    async def ask(self, timeout_s: float = 5.0) -> list[bytes]:
        got: list[bytes] = []
        await self.peer.stream(PATH, b"", got.append, timeout_s=timeout_s)
        return got


@pytest_asyncio.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    method = Method(PATH, Arity.SERVER_STREAM, count, needs_principal=False)
    far = tmp_path / "far.sock"
    server = await start_server([Service("test", [method])], [f"unix:{far}"], authenticate=lambda _: Principal("", ""))
    wire = Wire(tmp_path / "near.sock", far, seed=1)
    await wire.start()
    peer = connect(f"unix:{wire.near}")
    yield Line(wire, peer)
    await peer.close()
    await wire.stop()
    await server.stop(0)


async def failure(line: Line, timeout_s: float = 5.0) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await line.ask(timeout_s)
    return caught.value


async def test_everything_passes_at_first(line: Line) -> None:
    assert await line.ask() == [f"piece {number}".encode() for number in range(PIECES)]
    assert line.wire.harmed == 0


async def test_crowd_of_calls_passes_whole(line: Line) -> None:
    answers = await asyncio.gather(*(line.ask() for _ in range(50)))
    assert {len(answer) for answer in answers} == {PIECES}


async def test_slow_wire_is_late_and_loses_nothing(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "SLOW_S", 0.3)
    await line.ask()
    line.wire.mode = Mode.SLOW
    begun_s = time.monotonic()
    assert len(await line.ask()) == PIECES
    assert time.monotonic() - begun_s >= 0.3


async def test_failing_wire_resets_calls_at_once(line: Line) -> None:
    await line.ask()
    line.wire.mode = Mode.FAIL
    begun_s = time.monotonic()
    assert (await failure(line)).reason == ErrorReason.ERROR_REASON_INTERNAL
    assert time.monotonic() - begun_s < stretched(1)
    assert line.wire.harmed == 1


async def test_call_that_ran_before_is_spared_by_a_failing_wire(line: Line) -> None:
    got: list[bytes] = []
    call = asyncio.ensure_future(line.peer.stream(PATH, b"", got.append, timeout_s=5.0))
    await eventually(lambda: bool(got))
    line.wire.mode = Mode.FAIL
    await call
    assert len(got) == PIECES


async def test_cut_call_has_given_some_of_its_answer(line: Line) -> None:
    line.wire.mode = Mode.CUT
    got: list[bytes] = []
    with pytest.raises(MeshError):
        await line.peer.stream(PATH, b"", got.append, timeout_s=5.0)
    assert 0 < len(got) < PIECES


async def test_stalled_call_hangs_until_its_deadline(line: Line) -> None:
    line.wire.mode = Mode.STALL
    got: list[bytes] = []
    with pytest.raises(MeshError) as caught:
        await line.peer.stream(PATH, b"", got.append, timeout_s=0.5)
    assert caught.value.reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED
    assert 0 < len(got) < PIECES


async def test_garbled_messages_keep_their_length(line: Line) -> None:
    line.wire.mode = Mode.GARBLE
    assert await line.ask() == [b"\xff" * 7] * PIECES


async def test_nothing_passes_a_dark_wire_until_it_is_lit(line: Line) -> None:
    await line.ask()
    line.wire.mode = Mode.DARK
    assert (await failure(line, 0.3)).reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED
    line.wire.mode = Mode.PASS
    assert len(await line.ask()) == PIECES


@pytest.mark.parametrize("mode", [Mode.FAIL, Mode.CUT, Mode.STALL, Mode.GARBLE])
async def test_connection_is_good_again_after_harm(line: Line, mode: Mode) -> None:
    line.wire.mode = mode
    for _ in range(5):
        try:
            await line.ask(0.1)
        except MeshError:
            continue
    line.wire.mode = Mode.PASS
    assert len(await line.ask()) == PIECES


async def test_far_end_that_is_gone_closes_the_near_one(tmp_path: Path) -> None:
    wire = Wire(tmp_path / "near.sock", tmp_path / "nobody.sock")
    await wire.start()
    reader, writer = await asyncio.open_unix_connection(wire.near)
    assert await reader.read() == b""
    writer.close()
    await wire.stop()
