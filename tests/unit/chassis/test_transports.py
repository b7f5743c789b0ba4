"""What handlers and callers may rely on, on every transport."""

import asyncio
import gc
import struct
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Method, Peer, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import PRINCIPAL_METADATA, Principal, Signer
from ssop_chassis.serving import wall_clock_ms
from ssop_chassis.transport import Kind, connector, server_starter
from unit.chassis.transports import PRINCIPAL, SECRET, SIGNED, TRANSPORTS, WIRES, echo, hang, one_method, serve

METHOD = "/test.T/M"
Serve = Callable[[Service], AbstractAsyncContextManager[Peer]]


@pytest.fixture(params=TRANSPORTS)
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    return lambda service: serve(request.param, [service], tmp_path)


async def test_unary_returns_what_the_handler_wrote(serving: Serve) -> None:
    async with serving(one_method(Arity.UNARY, echo)) as peer:
        assert await peer.unary(METHOD, b"hello", timeout_s=5, metadata=SIGNED) == b"hello"


async def test_stream_hands_over_messages_in_order_and_returns_trailers(serving: Serve) -> None:
    async def count(call: Call) -> None:
        for number in range(100):
            await call.write(str(number).encode())
        call.set_trailing_metadata({"x-total": "100"})

    received: list[bytes] = []
    async with serving(one_method(Arity.SERVER_STREAM, count)) as peer:
        trailers = await peer.stream(METHOD, b"", received.append, timeout_s=5, metadata=SIGNED)
    assert received == [str(number).encode() for number in range(100)]
    assert trailers["x-total"] == "100"


@pytest.mark.parametrize(
    "error", [None, MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "cut")], ids=["well", "badly"]
)
async def test_what_was_sent_comes_before_the_end_of_its_call(serving: Serve, error: MeshError | None) -> None:
    """The wait for a message may be cut in the turn in which it begins."""
    messages = [b"1", b"2", b"3"]

    async def send(call: Call) -> None:
        for message in messages:
            if (pending := call.send(message)) is not None:
                asyncio.ensure_future(pending).cancel()
        if error is not None:
            raise error

    received: list[bytes] = []
    async with serving(one_method(Arity.SERVER_STREAM, send)) as peer:
        with pytest.raises(MeshError) if error is not None else nullcontext():
            await peer.stream(METHOD, b"", received.append, timeout_s=5, metadata=SIGNED)
    assert received == messages


async def test_handler_sees_the_principal_that_was_signed(serving: Serve) -> None:
    async def whoami(call: Call) -> None:
        await call.write(f"{call.principal.tenant} {sorted(call.principal.scopes)}".encode())

    async with serving(one_method(Arity.UNARY, whoami)) as peer:
        assert await peer.unary(METHOD, b"", timeout_s=5, metadata=SIGNED) == b"acme ['lite']"


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="absent"),
        pytest.param({PRINCIPAL_METADATA: b"x" * 80}, id="garbage"),
        pytest.param(Signer(b"y" * 32, "evil", wall_clock_ms).metadata(Principal("acme", "k")), id="forged"),
        pytest.param(Signer(SECRET, "old", lambda: wall_clock_ms() - 3_600_000).metadata(PRINCIPAL), id="expired"),
    ],
)
async def test_call_without_a_valid_principal_is_refused(serving: Serve, metadata: dict[str, bytes]) -> None:
    async with serving(one_method(Arity.UNARY, echo)) as peer:
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, b"", timeout_s=5, metadata=metadata)
    assert caught.value.reason == ErrorReason.ERROR_REASON_PRINCIPAL_INVALID


async def test_error_arrives_with_all_its_details(serving: Serve) -> None:
    sent = MeshError(
        ErrorReason.ERROR_REASON_RATE_LIMITED,
        "slow down",
        metadata={"scope": "tenant"},
        fields=[("prompt", "too long")],
        quotas=[("tenant:acme", "10 requests a second")],
        retry_after_ms=250,
    )

    async def fail(_: Call) -> None:
        raise sent

    async with serving(one_method(Arity.UNARY, fail)) as peer:
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, b"", timeout_s=5, metadata=SIGNED)
    error = caught.value
    assert (error.reason, error.message, error.metadata) == (sent.reason, sent.message, sent.metadata)
    assert (error.fields, error.quotas, error.retry_after_ms) == (sent.fields, sent.quotas, 250)


async def test_error_with_texts_of_any_size_arrives(serving: Serve) -> None:
    async def fail(_: Call) -> None:
        raise MeshError(
            ErrorReason.ERROR_REASON_SCHEMA_REFUSED,
            "错" * 50_000,
            metadata={"pointer": "/错" * 50_000},
            fields=[("f" * 50_000, "错" * 50_000)] * 100,
        )

    async with serving(one_method(Arity.UNARY, fail)) as peer:
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, b"", timeout_s=5, metadata=SIGNED)
    assert caught.value.reason == ErrorReason.ERROR_REASON_SCHEMA_REFUSED


async def test_text_of_a_foreign_exception_never_reaches_the_caller(serving: Serve) -> None:
    async def fail(_: Call) -> None:
        raise ValueError("canary-prompt-text")

    async with serving(one_method(Arity.UNARY, fail)) as peer:
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, b"", timeout_s=5, metadata=SIGNED)
    assert caught.value.reason == ErrorReason.ERROR_REASON_INTERNAL
    assert "canary" not in caught.value.message


async def test_deadline_ends_a_call_that_hangs(serving: Serve) -> None:
    async with serving(one_method(Arity.UNARY, hang)) as peer:
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, b"", timeout_s=0.1, metadata=SIGNED)
    assert caught.value.reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED


async def test_handler_knows_the_callers_deadline(serving: Serve) -> None:
    async def remaining(call: Call) -> None:
        await call.write(str(call.remaining_s()).encode())

    async with serving(one_method(Arity.UNARY, remaining)) as peer:
        # gRPC rounds time-outs up on the wire.
        assert 1 < float(await peer.unary(METHOD, b"", timeout_s=60, metadata=SIGNED)) < 60.5


async def test_client_that_goes_away_cancels_the_handler(serving: Serve) -> None:
    events: list[str] = []

    async def wait(_: Call) -> None:
        events.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ended")

    async with serving(one_method(Arity.SERVER_STREAM, wait)) as peer:
        call = asyncio.ensure_future(peer.stream(METHOD, b"", lambda _: None, timeout_s=30, metadata=SIGNED))
        await eventually(lambda: bool(events))
        call.cancel()
        await eventually(lambda: events == ["started", "ended"])
        with pytest.raises(asyncio.CancelledError):
            await call


class Carried:
    """A handler whose work waits, and then says what became of it; `outlives`: it goes on without its client."""

    def __init__(self, *, outlives: bool) -> None:
        self.started, self.gate = asyncio.Event(), asyncio.Event()
        self.ended = ""
        self.kept: list[asyncio.Task[object]] = []
        self._outlives = outlives

    async def serve(self, call: Call) -> None:
        await call.carry(self._work(), self._decide)

    def _decide(self, task: "asyncio.Task[object]") -> bool:
        if self._outlives:
            self.kept.append(task)
        return self._outlives

    async def _work(self) -> None:
        self.started.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "done"


@pytest.mark.parametrize("outlives", [True, False])
async def test_work_that_is_carried_is_asked_whether_it_outlives_its_client(serving: Serve, outlives: bool) -> None:
    carried = Carried(outlives=outlives)
    async with serving(one_method(Arity.SERVER_STREAM, carried.serve)) as peer:
        call = asyncio.ensure_future(peer.stream(METHOD, b"", lambda _: None, timeout_s=30, metadata=SIGNED))
        await carried.started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: bool(carried.kept) if outlives else carried.ended == "cancelled")
        carried.gate.set()
        await eventually(lambda: bool(carried.ended))
        assert carried.ended == ("done" if outlives else "cancelled")


@pytest.mark.parametrize("kind", WIRES)
async def test_work_that_outlives_its_call_is_not_waited_for_when_the_server_stops(kind: Kind, tmp_path: Path) -> None:
    carried = Carried(outlives=True)
    async with serve(kind, [one_method(Arity.SERVER_STREAM, carried.serve)], tmp_path) as peer:
        call = asyncio.ensure_future(peer.stream(METHOD, b"", lambda _: None, timeout_s=30, metadata=SIGNED))
        await carried.started.wait()
    with pytest.raises((MeshError, asyncio.CancelledError)):
        await call
    assert not carried.ended
    carried.gate.set()
    await eventually(lambda: carried.ended == "done")


async def test_call_whose_work_was_carried_leaves_nothing_to_the_collector(serving: Serve) -> None:
    gone: list[weakref.ref[object]] = []

    async def carry(call: Call) -> None:
        async def work() -> None:
            await call.write(b"answer")

        gone.append(weakref.ref(call))
        await call.carry(work(), lambda _: bool(call.metadata))

    async with serving(one_method(Arity.SERVER_STREAM, carry)) as peer:
        gc.disable()
        try:
            await peer.stream(METHOD, b"", lambda _: None, timeout_s=30, metadata=SIGNED)
            await eventually(lambda: gone[0]() is None)
        finally:
            gc.enable()


async def test_error_of_work_that_is_carried_ends_the_call(serving: Serve) -> None:
    async def work() -> None:
        raise MeshError(ErrorReason.ERROR_REASON_NO_BACKEND, "nobody")

    async def carry(call: Call) -> None:
        await call.carry(work(), lambda _: True)

    async with serving(one_method(Arity.SERVER_STREAM, carry)) as peer:
        with pytest.raises(MeshError, match="nobody"):
            await peer.stream(METHOD, b"", lambda _: None, timeout_s=30, metadata=SIGNED)


async def test_one_answer_comes_after_headers_that_went_ahead_of_it(serving: Serve) -> None:
    may_answer = asyncio.Event()

    async def answer_late(call: Call) -> None:
        await call.send_initial_metadata({"x-a": "b"})
        await may_answer.wait()
        await call.write(b"answer")

    async with serving(one_method(Arity.UNARY, answer_late)) as peer:
        call = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=5, metadata=SIGNED))
        # Turns of the loop in which the headers leave.
        for _ in range(200):
            await asyncio.sleep(0)
        may_answer.set()
        assert await call == b"answer"


async def test_reader_that_stops_stops_the_writer(serving: Serve) -> None:
    written = 0

    async def flood(call: Call) -> None:
        nonlocal written
        while True:
            await call.write(b"x" * 4096)
            written += 4096

    stalled = asyncio.Event()

    async def stall(_: bytes) -> None:
        stalled.set()
        await asyncio.Event().wait()

    async with serving(one_method(Arity.SERVER_STREAM, flood)) as peer:
        call = asyncio.ensure_future(peer.stream(METHOD, b"", stall, timeout_s=30, metadata=SIGNED))
        await stalled.wait()
        seen = -1
        while seen != written:
            seen = written
            for _ in range(200):
                await asyncio.sleep(0)
        assert written <= 262_144
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_deadline_holds_while_a_message_is_being_taken(serving: Serve) -> None:
    async def write_once(call: Call) -> None:
        await call.write(b"x")
        await asyncio.Event().wait()

    events: list[str] = []

    async def stall(_: bytes) -> None:
        events.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    async with serving(one_method(Arity.SERVER_STREAM, write_once)) as peer:
        # On a machine that is slow the message may come too late for a short one.
        for timeout_s in (0.2, 2.0, 20.0):
            with pytest.raises(MeshError) as caught:
                await peer.stream(METHOD, b"", stall, timeout_s=timeout_s, metadata=SIGNED)
            if events:
                break
    assert caught.value.reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED
    assert events == ["began", "cancelled"]


async def test_time_out_of_who_takes_a_message_is_none_of_the_call(serving: Serve) -> None:
    async def fail(_: bytes) -> None:
        await asyncio.sleep(0)
        raise TimeoutError("its own")

    async with serving(one_method(Arity.SERVER_STREAM, echo)) as peer:
        with pytest.raises(TimeoutError, match="its own"):
            await peer.stream(METHOD, b"x", fail, timeout_s=60, metadata=SIGNED)


async def test_unknown_method_is_unsupported(serving: Serve) -> None:
    async with serving(one_method(Arity.UNARY, echo)) as peer:
        with pytest.raises(MeshError) as caught:
            await peer.unary("/test.T/Other", b"", timeout_s=5, metadata=SIGNED)
    assert caught.value.reason == ErrorReason.ERROR_REASON_UNSUPPORTED


async def test_cancelled_calls_leave_no_task(serving: Serve) -> None:
    async with serving(one_method(Arity.SERVER_STREAM, hang)) as peer:
        before = len(asyncio.all_tasks())
        for _ in range(50):
            call = asyncio.ensure_future(peer.stream(METHOD, b"", lambda _: None, timeout_s=30, metadata=SIGNED))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        await eventually(lambda: len(asyncio.all_tasks()) <= before)


@pytest.mark.parametrize("kind", WIRES)
async def test_message_over_the_limit_is_said_to_be_too_large(kind: Kind, tmp_path: Path) -> None:
    async with serve(kind, [one_method(Arity.UNARY, echo)], tmp_path) as peer:
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, bytes(5_000_000), timeout_s=5, metadata=SIGNED)
    assert caught.value.reason == ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE


@pytest.mark.parametrize("kind", WIRES)
async def test_only_calls_with_one_request_get_the_default_deadline(kind: Kind, tmp_path: Path) -> None:
    async def remaining(call: Call) -> None:
        await call.write(str(call.remaining_s()).encode())

    kinds = {Arity.SERVER_STREAM: "stream", Arity.BIDI: "bidi"}
    methods = [Method(f"/test.T/{name}", arity, remaining, needs_principal=False) for arity, name in kinds.items()]
    listen = [f"unix:{tmp_path}/s"]
    server = await server_starter(kind, "test")(
        [Service("test.T", methods)], listen, authenticate=inner_authenticate(SECRET), default_deadline_ms=5_000
    )
    async with grpc.aio.insecure_channel(listen[0]) as channel:
        stream: Any = cast(Any, channel).unary_stream("/test.T/stream")(b"")
        assert float(await stream.read()) <= 5
        bidi: Any = channel.stream_stream("/test.T/bidi")()
        assert float(await bidi.read()) > 3600
        bidi.cancel()
        stream.cancel()
    await server.stop(0)


@pytest.mark.parametrize("order", [1, -1], ids=["forged first", "forged last"])
@pytest.mark.parametrize("kind", WIRES)
async def test_principal_that_comes_twice_is_refused(kind: Kind, tmp_path: Path, order: int) -> None:
    listen = [f"unix:{tmp_path}/s"]
    server = await server_starter(kind, "test")(
        [one_method(Arity.UNARY, echo)], listen, authenticate=inner_authenticate(SECRET), default_deadline_ms=5_000
    )
    async with grpc.aio.insecure_channel(listen[0]) as channel:
        pairs = [(PRINCIPAL_METADATA, b"x" * 64), *SIGNED.items()][::order]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cast(Any, channel).unary_unary(METHOD)(b"", metadata=tuple(pairs))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    await server.stop(0)


@pytest.mark.parametrize("kind", WIRES)
async def test_values_of_one_key_are_joined(kind: Kind, tmp_path: Path) -> None:
    async def policy(call: Call) -> None:
        await call.write(str(call.metadata["x-router-policy"]).encode())

    listen = [f"unix:{tmp_path}/s"]
    service = one_method(Arity.UNARY, policy, needs_principal=False)
    server = await server_starter(kind, "test")(
        [service], listen, authenticate=inner_authenticate(SECRET), default_deadline_ms=5_000
    )
    async with grpc.aio.insecure_channel(listen[0]) as channel:
        pairs = (("x-router-policy", "lite"), ("x-router-policy", "full"))
        assert await cast(Any, channel).unary_unary(METHOD)(b"", metadata=pairs) == b"lite, full"
    await server.stop(0)


@pytest.mark.parametrize("kind", WIRES)
async def test_crowd_waits_and_nobody_is_cancelled(kind: Kind, tmp_path: Path) -> None:
    listen = [f"unix:{tmp_path}/s"]
    service = one_method(Arity.UNARY, echo, needs_principal=False)
    server = await server_starter(kind, "test")(
        [service], listen, authenticate=inner_authenticate(SECRET), max_concurrent_calls=4_000
    )
    async with grpc.aio.insecure_channel(listen[0]) as channel:
        call: Any = cast(Any, channel).unary_unary(METHOD)
        answers = await asyncio.gather(*(call(b"%d" % number, timeout=30) for number in range(3_000)))
    await server.stop(0)
    assert answers == [b"%d" % number for number in range(3_000)]


@pytest.mark.parametrize(("pings", "is_ended"), [(10, False), (60, True)])
async def test_pings_that_come_together_after_a_stall_end_no_connection_and_a_flood_does(
    tmp_path: Path, pings: int, is_ended: bool
) -> None:
    frame, go_away = struct.Struct(">BHBBL"), 7
    server = await server_starter("grpc", "test")(
        [one_method(Arity.UNARY, echo)], [f"unix:{tmp_path}/s"], authenticate=inner_authenticate(SECRET)
    )
    reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame.pack(0, 0, 4, 0, 0))
    seen: list[int] = []

    async def ping(count: int) -> None:
        writer.write(b"".join(frame.pack(0, 8, 6, 0, 0) + bytes(8) for _ in range(count)))
        while count and go_away not in seen:
            high, low, kind, flags, _ = frame.unpack(await reader.readexactly(frame.size))
            await reader.readexactly(high << 16 | low)
            seen.append(kind)
            count -= kind == 6 and flags == 1

    async with asyncio.timeout(60):
        await ping(pings)
        # What ended the connection comes behind the answers.
        await ping(1)
    writer.close()
    await server.stop(0)
    assert (go_away in seen) is is_ended


@pytest.mark.parametrize("kind", WIRES)
async def test_calls_that_come_while_a_server_drains_are_not_said_to_be_cancelled(kind: Kind, tmp_path: Path) -> None:
    server = await server_starter(kind, "test")(
        [one_method(Arity.UNARY, echo)], [f"unix:{tmp_path}/s"], authenticate=inner_authenticate(SECRET)
    )
    peer = connector(kind)(f"unix:{tmp_path}/s")
    reasons: list[str] = []

    async def call() -> None:
        try:
            await peer.unary(METHOD, b"x", timeout_s=30, metadata=SIGNED)
        except MeshError as error:
            reasons.append(error.reason_name)

    await call()
    calls = [asyncio.ensure_future(call()) for _ in range(50)]
    stopping = asyncio.ensure_future(server.stop(2))
    for _ in range(30):
        calls += [asyncio.ensure_future(call()) for _ in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    await stopping
    await peer.close()
    assert set(reasons) <= {"BACKEND_FAILED"}
