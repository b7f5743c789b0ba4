"""HTTP to a model server: pooled connections, bounded bodies, event streams, and typed errors alone.

HTTP/1.1 on purpose: the client library sends no reset for an HTTP/2 stream that is given up, so a cancelled generation
would go on to its end. Closing a connection reaches every server.
"""

import asyncio
import codecs
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.core.upstream_errors import WireError, overloaded, parse_object, status_error
from ssop_inference.upstream_body import GuardedBody

MAX_EVENT_BYTES: Final = 1 << 20
"""Longest event of a stream: one token with its candidates is a few KiB."""
CONNECT: Final = "connect"
"""Metadata `stage` of the error for a server that nobody listens for."""
_MAX_ERROR_BYTES: Final = 64 << 10
_MAX_BODY_BYTES: Final = 4 << 20
_KEPT_S: Final = 30.0
_POOL_WAIT_S: Final = 1.0
_CLOSE_S: Final = 2.0
# A server learns that a generation is given up when it writes; after a reset the first write fails, else the second.
_RESET_ON_CLOSE: Final = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where a server is. `base_url` has no slash at its end; `secret_headers` are never logged."""

    base_url: str
    secret_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout_s: float = 2.0
    connections: int = 64
    ca_file: Path | None = None
    proxy: str = ""


class _EventBounds:
    """Refuses endless events and what is not UTF-8."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._held_bytes = 0
        self._last = b""

    def __call__(self, data: bytes) -> None:
        try:
            self._decoder.decode(data)
        except UnicodeDecodeError as error:
            raise WireError("the stream is not UTF-8") from error
        # An empty line ends an event; it may stand across two pieces.
        seen = (self._last + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = seen.rfind(b"\n\n")
        self._held_bytes = self._held_bytes + len(data) if end < 0 else len(seen) - end
        if self._held_bytes > self._max_event_bytes:
            raise WireError("an event of the stream is too long")
        self._last = data[-3:]


class UpstreamHttp:
    """Belongs to one event loop. Methods raise MeshError and WireError only. Callers set the deadline."""

    def __init__(self, options: HttpOptions, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Raises ValueError for a URL, and OSError for certificates, that can't be used."""
        self._max_event_bytes = max_event_bytes
        self._held: set[asyncio.Task[None]] = set()
        self._proxy = options.proxy
        self._connect_timeout_s = options.connect_timeout_s
        try:
            self.base_url = httpx.URL(options.base_url.rstrip("/"))
            context: ssl.SSLContext | bool = True
            if options.ca_file is not None:
                context = ssl.create_default_context(cafile=str(options.ca_file))
            transport = httpx.AsyncHTTPTransport(
                verify=context,
                limits=httpx.Limits(
                    max_connections=options.connections,
                    max_keepalive_connections=options.connections,
                    keepalive_expiry=_KEPT_S,
                ),
                proxy=options.proxy or None,
                socket_options=[_RESET_ON_CLOSE],
                trust_env=False,
                http2=False,
            )
            self._client = httpx.AsyncClient(
                headers={**options.secret_headers, "accept-encoding": "identity"},
                timeout=httpx.Timeout(None, connect=options.connect_timeout_s, pool=_POOL_WAIT_S),
                transport=transport,
                trust_env=False,
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"the URL of the model server can't be used: {error}") from error
        if self.base_url.scheme not in {"http", "https"} or not self.base_url.host:
            raise ValueError("the URL of a model server begins with http:// or https://")
        if not self.base_url.path.strip("/"):
            self.base_url = self.base_url.copy_with(path="/v1")
        path = self.base_url.path.rstrip("/")
        self._root = self.base_url.copy_with(path=path.removesuffix("/v1") or "/")

    def url(self, path: str, *, from_root: bool = False) -> httpx.URL:
        """A URL below the API, or below the server's own root, where its management is."""
        base = self._root if from_root else self.base_url
        return base.copy_with(path=base.path.rstrip("/") + path)

    @property
    def open_requests(self) -> int:
        """Tasks that read or close an answer."""
        return len(self._held)

    async def get(self, path: str, *, from_root: bool = False) -> bytes:
        """The body of a page."""
        return await self._whole("GET", self.url(path, from_root=from_root), None)

    async def post(self, path: str, body: Mapping[str, Any], *, from_root: bool = False) -> dict[str, Any]:
        """The JSON object that answers a JSON object."""
        return parse_object(await self._whole("POST", self.url(path, from_root=from_root), body))

    async def get_object(self, path: str, *, from_root: bool = False) -> dict[str, Any]:
        """A page that is a JSON object."""
        return parse_object(await self.get(path, from_root=from_root))

    @asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
        """Post and read the events of the answer. Leaving closes the connection, unless the body was read to its end.

        Raises what `status_error` says for an answer that is not 200, WireError for one that is no event stream.
        """
        with _transport_errors():
            response = await self._send("POST", self.url(path), body)
            try:
                await self._check(response)
                response.encoding = "utf-8"
                cast("GuardedBody", response.stream).check = _EventBounds(self._max_event_bytes)
                yield EventSource(response).aiter_sse()
            finally:
                await response.aclose()

    async def reach(self) -> None:
        """Make a connection to the server, or to the proxy on the way, and drop it. Raises MeshError, stage CONNECT."""
        url = httpx.URL(self._proxy) if self._proxy else self.base_url
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, writer = await asyncio.open_connection(url.host, port)
        except (OSError, TimeoutError) as error:
            raise _failed("the model server can't be reached", stage=CONNECT) from error
        # A reset, so that ports in TIME_WAIT don't pile up.
        writer.transport.abort()

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        if self._held:
            await asyncio.wait(self._held, timeout=_CLOSE_S)
        await self._client.aclose()

    async def _whole(self, method: str, url: httpx.URL, body: Mapping[str, Any] | None) -> bytes:
        with _transport_errors():
            response = await self._send(method, url, body)
            try:
                await self._check(response)
                return await _read(response, _MAX_BODY_BYTES)
            finally:
                await response.aclose()

    async def _send(self, method: str, url: httpx.URL, body: Mapping[str, Any] | None) -> httpx.Response:
        connects = 0

        async def trace(name: str, _: Any) -> None:
            nonlocal connects
            connects += name == "connection.connect_tcp.started"

        request = self._client.build_request(method, url, json=body, extensions={"trace": trace})
        try:
            return await self._send_once(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if connects:
                raise
            # The server closed a kept connection just when it was to be used again: it has seen nothing.
            return await self._send_once(request)

    async def _send_once(self, request: httpx.Request) -> httpx.Response:
        # In a task of its own, which is cancelled once at most: a second cancel would cut short what the first began.
        sending = asyncio.create_task(self._client.send(request, stream=True))
        try:
            response = await asyncio.shield(sending)
        except asyncio.CancelledError:
            sending.cancel()
            sending.add_done_callback(self._drop)
            raise
        response.stream = GuardedBody(response, self._hold)
        return response

    def _drop(self, sending: "asyncio.Task[httpx.Response]") -> None:
        """Close an answer that came when nobody wanted it any more."""
        if not sending.cancelled() and sending.exception() is None:
            self._hold(sending.result().aclose())

    def _hold(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._held.add(task)
        task.add_done_callback(self._held.discard)
        return task

    async def _check(self, response: httpx.Response) -> None:
        if response.status_code != httpx.codes.OK:
            body = await _read(response, _MAX_ERROR_BYTES, is_cut=True)
            raise status_error(response.status_code, response.headers, body, now_s=time.time())
        if response.headers.get("content-encoding", "identity") != "identity":
            raise WireError("the answer is encoded in a way that was not asked for")


async def _read(response: httpx.Response, max_bytes: int, *, is_cut: bool = False) -> bytes:
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > max_bytes:
            if is_cut:
                break
            raise WireError("the answer is too long")
    return bytes(data[:max_bytes])


@contextmanager
def _transport_errors() -> Iterator[None]:
    """Turns the errors of the client library into MeshError and WireError."""
    try:
        yield
    except httpx.PoolTimeout as error:
        raise overloaded("every connection to the model server is in use", retry_after_ms=1_000) from error
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise _failed("the model server can't be reached", stage=CONNECT) from error
    except SSEError as error:
        raise WireError("the answer is no event stream") from error
    except (httpx.HTTPError, httpx.StreamError, OSError) as error:
        raise _failed("the connection to the model server broke") from error


def _failed(text: str, **metadata: str) -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, text, metadata=metadata)
