"""One HTTP request and its response: bounded reading and writing, and the client that may go away."""

import asyncio
import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from starlette.datastructures import QueryParams
from starlette.types import Message, Receive, Scope, Send

from ssop_chassis import logs
from ssop_chassis.http_server import ABORT
from ssop_gateway.core.faults import EdgeError, invalid
from ssop_gateway.core.frames import Delivery, dump
from ssop_gateway.core.reading import JSON_TYPE, Caller, is_request_id, read_caller
from ssop_gateway.metrics import CLIENT_GONE, METHODS, GatewayMetrics
from ssop_gateway.settings import GatewaySettings
from ssop_gateway.tracing import request_span
from ssop_gateway.upstream import Router

T = TypeVar("T")
_COMMENT: Final = b": keep-alive\n\n"
_DRAINED_BODIES: Final = 4
_GONE_S: Final = 1.0
_log = logging.getLogger(__name__)


class ClientGone(Exception):  # noqa: N818 - it says what happened
    """The client closed the connection, or did not read for too long."""


@dataclass(slots=True)
class Bodies:
    """Room that the bodies of requests take."""

    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """What all requests share. `now_s` is the wall clock in seconds since the epoch."""

    settings: GatewaySettings
    router: Router
    metrics: GatewayMetrics
    now_s: Callable[[], float] = time.time
    bodies: Bodies = field(default_factory=Bodies)


class Exchange:
    """A request and its response."""

    def __init__(self, edge: Edge, route: str, scope: Scope, receive: Receive, send: Send) -> None:
        self.edge = edge
        self.route = route
        self.method = str(scope["method"])
        self.path_parameters: Mapping[str, str] = scope.get("path_params", {})
        self.query = QueryParams(scope["query_string"])
        self.headers = _join_headers(scope["headers"])
        self.status = 0
        self._abort: Callable[[], None] | None = scope.get("state", {}).get(ABORT)
        self._body_bytes = 0
        self._receive = receive
        self._send = send
        self._began_s = time.monotonic()
        self._sent_s = self._began_s
        self._has_event = False
        self._is_finished = False
        self._head_bytes = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        self._sending = asyncio.Lock()
        self._extra: dict[str, str] = {}
        sent_id = self.headers.get("x-request-id", "").strip()
        self._id_fault = bool(sent_id) and not is_request_id(sent_id)
        self.request_id = sent_id if sent_id and not self._id_fault else uuid.uuid4().hex
        logs.request_id.set(self.request_id)

    @property
    def is_started(self) -> bool:
        """The head of the response was sent."""
        return self.status > 0

    @property
    def elapsed_s(self) -> float:
        """Time since the head of the request."""
        return time.monotonic() - self._began_s

    def check_head(self) -> None:
        """Raise HEAD_TOO_LARGE: the parser's own bound holds only for heads that come in several pieces."""
        limit = self.edge.settings.max_header_bytes
        if self._head_bytes > limit:
            raise EdgeError("HEAD_TOO_LARGE", f"the head of the request is larger than {limit} bytes")

    def caller(self) -> Caller:
        """Who asks. Raises KEY_MISSING, KEY_INVALID, POLICY_INVALID and REQUEST_INVALID."""
        caller = read_caller(self.headers, self.request_id)
        if self._id_fault:
            raise invalid("x-request-id", "is not 1 to 64 characters of [A-Za-z0-9._:-]")
        return caller

    def rename(self, request_id: str) -> None:
        """Take the id that the body names."""
        if not is_request_id(request_id):
            raise invalid("request_id", "is not 1 to 64 characters of [A-Za-z0-9._:-]")
        self.request_id = request_id
        logs.request_id.set(request_id)

    async def read_body(self) -> bytes:
        """The whole body. Raises MESSAGE_TOO_LARGE, BODY_TIMEOUT, UNSUPPORTED_MEDIA_TYPE; ClientGone."""
        settings = self.edge.settings
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise EdgeError("UNSUPPORTED_MEDIA_TYPE", "bodies are taken without a content encoding")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(settings.body_timeout_ms / 1000):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    part = message.get("body", b"")
                    size += len(part)
                    if size <= settings.max_body_bytes:
                        self._hold(len(part))
                        parts.append(part)
                    # A client that is still sending does not read the refusal, so some of the rest is taken.
                    if not message.get("more_body", False) or size > _DRAINED_BODIES * settings.max_body_bytes:
                        break
        except TimeoutError:
            raise EdgeError(
                "BODY_TIMEOUT", "the body did not arrive in time", headers={"connection": "close"}
            ) from None
        if size > settings.max_body_bytes:
            raise EdgeError(
                "MESSAGE_TOO_LARGE",
                f"the body is larger than {settings.max_body_bytes} bytes",
                metadata={"limit_bytes": str(settings.max_body_bytes)},
                headers={"connection": "close"},
            )
        return b"".join(parts)

    def _hold(self, size_bytes: int) -> None:
        bodies = self.edge.bodies
        if bodies.held_bytes + size_bytes > self.edge.settings.max_held_bytes:
            raise EdgeError(
                "OVERLOADED",
                "the edge holds as many bodies of requests as it can",
                retry_after_ms=1_000,
                headers={"connection": "close"},
            )
        bodies.held_bytes += size_bytes
        self._body_bytes += size_bytes

    async def until_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work; cancel it when the client goes away. Raises ClientGone then."""
        worker = asyncio.ensure_future(work)
        watcher = asyncio.ensure_future(self._wait_gone())
        try:
            await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not worker.done():
                raise ClientGone
            return worker.result()
        finally:
            for task in (worker, watcher):
                task.cancel()
            await asyncio.wait({worker, watcher})

    async def wait_gone(self) -> None:
        """Wait until the server has noticed that the client is gone, so that it does not miss the rest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_S):
                await self._wait_gone()

    def release(self) -> None:
        """Give back what the request held of the room for bodies."""
        self.edge.bodies.held_bytes -= self._body_bytes
        self._body_bytes = 0

    async def _wait_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def take_delivery(self, delivery: Delivery) -> None:
        """Say with the head of the response how the answer is delivered."""
        self._extra.update(delivery.headers())
        if delivery.is_degraded:
            self.edge.metrics.degraded(delivery.level)

    async def start(self, status: int, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """Send the head."""
        self.status = status
        pairs = {
            "content-type": content_type,
            "x-request-id": self.request_id,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **self._extra,
            **(headers or {}),
        }
        encoded = [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in pairs.items()]
        await self._write({"type": "http.response.start", "status": status, "headers": encoded})

    async def write(self, data: bytes) -> None:
        """Send a part of the body; returns when there is room for the next. Raises ClientGone where nobody reads."""
        if not self._has_event:
            self._has_event = True
            self.edge.metrics.first_event(self.route, self.elapsed_s)
        await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last part of the body."""
        self._is_finished = True
        await self._write({"type": "http.response.body", "body": data, "more_body": False})

    async def _write(self, message: Message) -> None:
        try:
            async with self._sending, asyncio.timeout(self.edge.settings.write_timeout_ms / 1000):
                await self._send(message)
        except TimeoutError:
            if self._abort is not None:
                self._abort()
            raise ClientGone from None
        self._sent_s = time.monotonic()

    async def answer_json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """A whole response of JSON; `body` is a value, or its text."""
        text = body if isinstance(body, str) else dump(body)
        await self.answer(status, JSON_TYPE, text.encode(), headers)

    async def answer(
        self, status: int, content_type: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole response."""
        await self.start(status, content_type, {"content-length": str(len(data)), **(headers or {})})
        await self.finish(b"" if self.method == "HEAD" else data)

    async def answer_error(self, error: EdgeError) -> None:
        """The response to a request that failed before anything was sent."""
        self.edge.metrics.error(error.reason)
        if not self.is_started:
            await self.answer_json(error.status, error.body(self.request_id), error.response_headers())

    @contextlib.asynccontextmanager
    async def kept_alive(self, is_started: Callable[[], bool]) -> AsyncIterator[None]:
        """Send comments on an SSE stream that is silent, once it has begun."""
        interval_s = self.edge.settings.keepalive_ms / 1000

        async def comment() -> None:
            while True:
                silent_s = time.monotonic() - self._sent_s
                await asyncio.sleep(max(0.001, interval_s - silent_s))
                if is_started() and not self._is_finished and time.monotonic() - self._sent_s >= interval_s:
                    await self._write({"type": "http.response.body", "body": _COMMENT, "more_body": True})

        task = asyncio.ensure_future(comment())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                # A reader that is stuck is found by the next event, too.
                task.exception()


Handle = Callable[[Exchange], Awaitable[None]]


class Endpoint:
    """An ASGI application for one route: runs the handler, and turns what it raises into the response."""

    def __init__(self, edge: Edge, route: str, handle: Handle) -> None:
        self._edge = edge
        self._route = route
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        exchange = Exchange(self._edge, self._route, scope, receive, send)
        self._edge.metrics.in_flight.inc()
        status = CLIENT_GONE
        try:
            with request_span(self._method(exchange), self._route, exchange.headers) as end_span:
                try:
                    await self._serve(exchange)
                    status = exchange.status
                except ClientGone:
                    await exchange.wait_gone()
                end_span(status)
        finally:
            exchange.release()
            self._edge.metrics.in_flight.dec()
            self._edge.metrics.finish(self._route, self._method(exchange), status, exchange.elapsed_s)

    @staticmethod
    def _method(exchange: Exchange) -> str:
        return exchange.method if exchange.method in METHODS else "_OTHER"

    async def _serve(self, exchange: Exchange) -> None:
        try:
            exchange.check_head()
            await self._handle(exchange)
        except EdgeError as error:
            if exchange.is_started:
                raise
            await exchange.answer_error(error)
        except ClientGone:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the client gets a response
            # The text of an exception may quote a prompt; the formatter of the logs keeps it out.
            _log.exception("a request failed")
            fault = EdgeError("INTERNAL", "a fault of the edge; its log has the cause under the request id")
            await exchange.answer_error(fault)


def _join_headers(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """One value for each name; several are joined by commas (RFC 9110, 5.3), so that a second key hides nothing."""
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return {name: ", ".join(several) for name, several in values.items()}


def parse_positive_ms(exchange: Exchange, name: str) -> int | None:
    """A header of milliseconds. Raises REQUEST_INVALID."""
    text = exchange.headers.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= 9 and int(text) > 0):
        raise invalid(name, "is no number of milliseconds above 0")
    return int(text)


def timeout_ms(exchange: Exchange, asked_ms: int | None) -> int:
    """The deadline of a request: the body's, else the header's `x-request-timeout-ms`, else the configured one."""
    settings = exchange.edge.settings
    wanted_ms = asked_ms or parse_positive_ms(exchange, "x-request-timeout-ms") or settings.default_timeout_ms
    return min(wanted_ms, settings.max_timeout_ms)


def error_event(exchange: Exchange, error: EdgeError) -> str:
    """The error of a stream that has begun, as JSON text."""
    exchange.edge.metrics.error(error.reason)
    return json.dumps(error.body(exchange.request_id), ensure_ascii=False)
