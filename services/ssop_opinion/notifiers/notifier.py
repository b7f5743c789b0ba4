"""What the ways to tell of alerts have in common: a POST with a deadline, and three kinds of faults.

Faults carry a word as their reason and nothing of the address, whose path is a credential, nor of the message.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import httpx

from ssop_opinion.alert_store import Message
from ssop_opinion.notifiers.words import Language

MAX_REPLY_BYTES: Final = 65_536
_MAX_RETRY_AFTER_S: Final = 3_600


class TellError(Exception):
    """Base of what can go wrong; `reason` is a word for logs, metrics and the page."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LaterError(TellError):
    """Not now. `retry_after_ms` is None where the receiver does not say when."""

    def __init__(self, reason: str, retry_after_ms: int | None = None) -> None:
        super().__init__(reason)
        self.retry_after_ms = retry_after_ms


class RefusedError(TellError):
    """Never this message; others may pass."""


class BrokenError(TellError):
    """Nothing passes until somebody repairs the channel: a wrong key, a robot that was removed."""


class Notifier(Protocol):
    """Tells of alerts on one channel."""

    @property
    def most(self) -> int:
        """Messages that may be told of together."""
        ...

    async def tell(self, messages: Sequence[Message], now_ms: int) -> None:
        """Tell of one message, or of several in one. Raises TellError."""
        ...


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where messages of a channel go, and how they read.

    `read_url` gives the address, which holds a robot's key, and `read_secret` that of the signature (empty: none), each
    time: a mended file is taken at once. Both raise BrokenError.
    """

    client: httpx.AsyncClient
    read_url: Callable[[], str]
    read_secret: Callable[[], str]
    language: Language
    timeout_ms: int
    page_url: str

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> "Reply":
        """See `post`."""
        return await post(self.client, self.read_url(), body, headers or {}, self.timeout_ms)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a receiver answered. `body` is its JSON object; empty where it is none."""

    status: int
    body: Mapping[str, Any]
    retry_after_ms: int | None

    def code(self, name: str) -> int | None:
        """A member that is an integer."""
        found = self.body.get(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else None


def check_url(url: str, *, is_plain_allowed: bool) -> str:
    """An address that alerts may be sent to. Raises ValueError, which does not quote it."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("the address is no URL") from None
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ValueError("the address must begin with https://")
    if parts.scheme == "http" and not (is_plain_allowed or _is_loopback(parts.hostname)):
        raise ValueError("the address must begin with https://, unless is_plain_allowed")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_client() -> httpx.AsyncClient:
    """The connections of all channels. A redirect is an answer like another: it could lead anywhere."""
    limits = httpx.Limits(max_connections=32, max_keepalive_connections=8)
    return httpx.AsyncClient(follow_redirects=False, limits=limits)


async def post(client: httpx.AsyncClient, url: str, body: bytes, headers: Mapping[str, str], timeout_ms: int) -> Reply:
    """Send JSON and read at most MAX_REPLY_BYTES of the answer, all within the time. Raises LaterError."""
    headers = {"content-type": "application/json; charset=utf-8", **headers}
    try:
        async with (
            asyncio.timeout(timeout_ms / 1_000),
            client.stream("POST", url, content=body, headers=headers, timeout=timeout_ms / 1_000) as response,
        ):
            held = bytearray()
            async for piece in response.aiter_bytes():
                held += piece
                if len(held) > MAX_REPLY_BYTES:
                    raise LaterError("REPLY_TOO_LARGE")
            return Reply(response.status_code, _object(bytes(held)), _retry_after_ms(response.headers))
    except (TimeoutError, httpx.TimeoutException):
        raise LaterError("TIMEOUT") from None
    except (httpx.HTTPError, httpx.InvalidURL):
        raise LaterError("UNREACHABLE") from None


def check_status(reply: Reply) -> None:
    """Raise what an HTTP status other than 2xx means."""
    status = reply.status
    if 200 <= status < 300:
        return
    if status in {408, 409, 425, 429} or status >= 500:
        raise LaterError(f"HTTP_{status}", reply.retry_after_ms)
    if status in {400, 413, 422}:
        raise RefusedError(f"HTTP_{status}")
    raise BrokenError(f"HTTP_{status}")


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _retry_after_ms(headers: httpx.Headers) -> int | None:
    text = headers.get("retry-after", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        return None
    return min(int(text), _MAX_RETRY_AFTER_S) * 1_000


def encode(body: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8; half a surrogate pair, which posts may hold, becomes a question mark."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def cut(text: str, max_bytes: int) -> str:
    """A text that takes at most so many bytes in UTF-8, with a mark where something is missing."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= max_bytes else data[: max_bytes - 3].decode("utf-8", "ignore") + "…"
