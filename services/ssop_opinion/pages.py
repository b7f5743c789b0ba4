"""The page /opinion and what it asks: records, figures, alerts, and events as they happen.

Every answer is the tenant's whose key was sent, whatever else a request says. Fixed files are under a policy that lets
the page load nothing else.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from ssop_chassis.http_server import ABORT
from ssop_opinion.core.alerts import Alert, AlertError
from ssop_opinion.core.document import to_document
from ssop_opinion.core.summary import summarise
from ssop_opinion.desk import Desk
from ssop_opinion.feed import FullError, Watcher
from ssop_opinion.key_check import Ask, KeyCheck, KeyRefusedError, MeshSilentError, Reader, ask_router
from ssop_opinion.ports import AlertDesk, Query, Sink, SinkAwayError
from ssop_opinion.wiring import Setup

MAX_SUMMED: Final = 5_000
"""Records that figures are made of: the newest of those asked for. The answer says so where there are more."""
SUMMARY_CACHE_MS: Final = 3_000
MAX_SUMMARIES: Final = 64
MAX_SUMMING: Final = 2
"""Summaries that are made at the same time: others wait."""
MAX_LIMIT: Final = 200
MAX_OFFSET: Final = 9_800
"""Search engines refuse deeper windows than 10,000 records."""
MAX_HOURS: Final = 24 * 92
MAX_TEXT: Final = 256
KEEPALIVE_S: Final = 15.0
WRITE_TIMEOUT_S: Final = 20.0
_BUCKETS: Final = 48
_TYPES: Final = {
    "index.html": "text/html; charset=utf-8",
    "opinion.css": "text/css; charset=utf-8",
    "opinion.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "events.js": "text/javascript; charset=utf-8",
}
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
_PRIVATE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
Answer = Callable[[Request, Reader], Awaitable[Response]]


class BadRequestError(ValueError):
    """400, with what is wrong."""


_FAULTS: Final[Mapping[type[Exception], tuple[int, str, str]]] = {
    KeyRefusedError: (401, "KEY_INVALID", "send an API key of the mesh as 'authorization: Bearer <key>'"),
    MeshSilentError: (503, "MESH_UNAVAILABLE", "the mesh can't say whose this key is"),
    BadRequestError: (400, "REQUEST_INVALID", ""),
    AlertError: (409, "ALERT_NOT_OPEN", ""),
    SinkAwayError: (503, "SINK_UNAVAILABLE", "the records can't be read now"),
    FullError: (503, "OVERLOADED", "as many pages watch as may"),
}
"""Status, reason and message; an empty message is the error's own."""


def page_routes(setup: Setup, sink: Sink, desk: AlertDesk, ask: Ask | None = None) -> Sequence[BaseRoute]:
    """The routes of the page; none where the settings say so. See wiring.PageRoutes."""
    if not setup.settings.has_page:
        return ()
    if not isinstance(desk, Desk):
        raise TypeError("the page shows what a Desk knows")
    check = KeyCheck(ask or ask_router(setup.settings.router_address), setup.settings.page_key_cache_ms)
    return _Pages(sink, desk, check, setup.tenants).routes()


class _Pages:
    def __init__(self, sink: Sink, desk: Desk, check: KeyCheck, tenants: Container[str]) -> None:
        self._sink = sink
        self._desk = desk
        self._check = check
        self._tenants = tenants
        self._summing = asyncio.Semaphore(MAX_SUMMING)
        self._summaries: dict[tuple[Any, ...], tuple[float, dict[str, Any]]] = {}

    def routes(self) -> Sequence[BaseRoute]:
        """See page_routes."""
        folder = files("ssop_opinion") / "page"
        fixed = [Route(f"/opinion/{name}", _fixed(name, (folder / name).read_bytes())) for name in _TYPES]
        fixed[0] = Route("/opinion", _fixed("index.html", (folder / "index.html").read_bytes()))
        return [
            *fixed,
            Route("/v1/opinion/records", self._guarded(self._records)),
            Route("/v1/opinion/record", self._guarded(self._record)),
            Route("/v1/opinion/summary", self._guarded(self._summary)),
            Route("/v1/opinion/alerts", self._guarded(self._alerts)),
            Route("/v1/opinion/alerts/{id}/acknowledge", self._guarded(self._acknowledge), methods=["POST"]),
            Route("/v1/opinion/channels", self._guarded(self._channels)),
            Route("/v1/opinion/events", self._guarded(self._events)),
        ]

    def _guarded(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                reader = await self._check.reader(request.headers.get("authorization", ""))
                if reader.tenant not in self._tenants:
                    return _fault(403, "TENANT_UNKNOWN", "no posts are taken in for the tenant of this key")
                return await answer(request, reader)
            except tuple(_FAULTS) as error:
                status, reason, message = _FAULTS[type(error)]
                return _fault(status, reason, message or str(error))

        return guarded

    async def _records(self, request: Request, reader: Reader) -> Response:
        limit, offset = _number(request, "limit", 50, MAX_LIMIT), _number(request, "offset", 0, MAX_OFFSET)
        found = await self._sink.find(_query(request, reader, limit=limit, offset=offset))
        return _json({"total": found.total, "records": [to_document(one) for one in found.records]})

    async def _record(self, request: Request, reader: Reader) -> Response:
        key = request.query_params.get("key", "")
        if not key.startswith(f"{reader.tenant}/"):
            return _fault(404, "RECORD_UNKNOWN", "there is no such record")
        found = await self._sink.find(Query(tenant=reader.tenant, terms={"key": key}, limit=1))
        record = next((one for one in found.records if one.key == key), None)
        if record is None:
            return _fault(404, "RECORD_UNKNOWN", "there is no such record")
        return _json({"record": to_document(record), "frames": self._desk.feed.frames(key)})

    async def _summary(self, request: Request, reader: Reader) -> Response:
        hours = _number(request, "hours", 24, MAX_HOURS, least=1)
        query = _query(request, reader, limit=MAX_SUMMED, offset=0)
        name = (reader.tenant, hours, query.text, tuple(sorted((query.terms or {}).items())))
        async with self._summing:
            held = self._summaries.get(name)
            if held is None or time.monotonic() >= held[0]:
                found = await self._sum(query, hours)
                held = (time.monotonic() + SUMMARY_CACHE_MS / 1_000, found)
                if len(self._summaries) >= MAX_SUMMARIES:
                    del self._summaries[min(self._summaries, key=lambda one: self._summaries[one][0])]
                self._summaries[name] = held
        return _json(held[1])

    async def _sum(self, query: Query, hours: int) -> dict[str, Any]:
        until_ms = time.time_ns() // 1_000_000 + 1
        since_ms = until_ms - hours * 3_600_000
        found = await self._sink.find(
            Query(tenant=query.tenant, text=query.text, terms=query.terms, since_ms=since_ms, limit=MAX_SUMMED)
        )
        # Thousands of records take tens of milliseconds, in which events and webhooks would wait.
        summary = await asyncio.to_thread(summarise, found.records, since_ms, until_ms, _BUCKETS)
        counted_since_ms = found.records[-1].post.received_ms if found.total > len(found.records) else since_ms
        return {**summary, "total": found.total, "counted_since_ms": counted_since_ms}

    async def _alerts(self, request: Request, reader: Reader) -> Response:
        limit = _number(request, "limit", 50, MAX_LIMIT)
        until_ms = _number(request, "until_ms", 1 << 61, 1 << 61)
        found = await self._desk.alerts(reader.tenant, limit=limit, until_ms=until_ms)
        return _json({"alerts": [_alert(one) for one in found]})

    async def _acknowledge(self, request: Request, reader: Reader) -> Response:
        alert = await self._desk.acknowledge(reader.tenant, request.path_params["id"], reader.key_id)
        return _json({"alert": _alert(alert)})

    async def _channels(self, _: Request, reader: Reader) -> Response:
        channels = await self._desk.deliveries(reader.tenant)
        return _json({"channels": channels, "is_judged": self._desk.is_well})

    async def _events(self, request: Request, reader: Reader) -> Response:
        authorization = request.headers.get("authorization", "")
        watching = self._desk.feed.watch(reader.tenant)
        return _EventStream(self._watch(watching.__enter__(), reader, authorization), watching)

    async def _watch(self, watcher: Watcher, reader: Reader, authorization: str) -> AsyncIterator[bytes]:
        yield b": watching\n\n"
        checked_s = time.monotonic()
        while True:
            events: list[Mapping[str, Any]] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEPALIVE_S):
                    events = await watcher.take()
            yield b"".join(b"data: " + _encode(event) + b"\n\n" for event in events) or b": still here\n\n"
            if time.monotonic() - checked_s >= KEEPALIVE_S:
                checked_s = time.monotonic()
                if not await self._is_still(reader, authorization):
                    return

    async def _is_still(self, reader: Reader, authorization: str) -> bool:
        """Whether a key is still this reader's: one that was revoked watches no longer."""
        try:
            return await self._check.reader(authorization) == reader
        except KeyRefusedError:
            return False
        except MeshSilentError:
            return True


class _EventStream(StreamingResponse):
    """Events until the client goes; one that leaves them unread is dropped."""

    def __init__(self, content: AsyncIterator[bytes], watching: Any) -> None:
        super().__init__(content, headers={**_PRIVATE, "x-accel-buffering": "no"}, media_type="text/event-stream")
        self._watching = watching

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def timely(message: Message) -> None:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await send(message)
            except TimeoutError:
                abort = scope.get("state", {}).get(ABORT)
                if abort is not None:
                    abort()
                raise OSError("the client reads nothing") from None

        try:
            await super().__call__(scope, receive, timely)
        finally:
            self._watching.__exit__(None, None, None)


def _query(request: Request, reader: Reader, *, limit: int, offset: int) -> Query:
    text = request.query_params.get("text", "")
    if len(text) > MAX_TEXT:
        raise BadRequestError(f"`text` has more than {MAX_TEXT} characters")
    terms: dict[str, str] = {}
    for one in request.query_params.getlist("term"):
        name, colon, value = one.partition(":")
        if not colon or not name or len(one) > MAX_TEXT or len(terms) >= 8:
            raise BadRequestError("`term` is NAME:VALUE, at most 8 times")
        terms[name] = value
    most = 1 << 61
    return Query(
        tenant=reader.tenant,
        text=text,
        since_ms=_number(request, "since_ms", 0, most) or None,
        until_ms=_number(request, "until_ms", 0, most) or None,
        terms=terms or None,
        has_degraded=request.query_params.get("fresh") != "1",
        limit=limit,
        offset=offset,
    )


def _number(request: Request, name: str, default: int, most: int, least: int = 0) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or not least <= int(text) <= most:
        raise BadRequestError(f"`{name}` is no number from {least} to {most}")
    return int(text)


def _alert(alert: Alert) -> Mapping[str, Any]:
    found = asdict(alert)
    # How rules group posts is nothing that a page needs.
    del found["places"]
    return {**found, "is_open": alert.is_open}


def _json(body: Mapping[str, Any]) -> Response:
    return Response(_encode(body), media_type="application/json", headers=_PRIVATE)


def _encode(body: Mapping[str, Any]) -> bytes:
    # ASCII: half a surrogate pair, which posts may hold, has no UTF-8.
    return json.dumps(body, separators=(",", ":"), default=str).encode("ascii")


def _fault(status: int, reason: str, message: str) -> Response:
    return JSONResponse({"error": {"reason": reason, "message": message}}, status, headers=_PRIVATE)


def _fixed(name: str, data: bytes) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(data, media_type=_TYPES[name], headers=_HEADERS)

    return answer
