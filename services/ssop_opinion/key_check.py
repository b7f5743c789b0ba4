"""Whose a key of the page is: the mesh says so, and its word is kept for a while."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ssop_sdk.async_client import AsyncSsopClient
from ssop_sdk.errors import AuthenticationError, PermissionDenied, SsopError

MAX_KEYS: Final = 1_024
MAX_ASKED: Final = 8
"""Keys that the mesh is asked about at the same time: anybody can send some."""
REFUSAL_MS: Final = 5_000
_TIMEOUT_S: Final = 5.0
Ask = Callable[[str], Awaitable[str]]
"""The tenant of a key. Raises SsopError."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who looks at the page: a tenant, and the id of the key."""

    tenant: str
    key_id: str


class KeyRefusedError(Exception):
    """401: no key, or none that the mesh knows."""


class MeshSilentError(Exception):
    """503: nobody can say whose the key is."""


def ask_router(address: str) -> Ask:
    """Asks a router: what a tenant used is the cheapest question whose answer names the tenant."""

    async def ask(key: str) -> str:
        async with AsyncSsopClient(api_key=key, target=address, timeout_s=_TIMEOUT_S) as client:
            return (await client.usage(1)).tenant

    return ask


class KeyCheck:
    """Keeps what it was told of a key for `cache_ms`, under a hash of it."""

    def __init__(self, ask: Ask, cache_ms: int, now_ms: Callable[[], float] = lambda: time.monotonic() * 1_000) -> None:
        self._ask = ask
        self._cache_ms = cache_ms
        self._now_ms = now_ms
        self._known: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._asking = asyncio.Semaphore(MAX_ASKED)

    async def reader(self, authorization: str) -> Reader:
        """Who sent an `authorization: Bearer <key>` header. Raises KeyRefusedError and MeshSilentError."""
        kind, _, key = authorization.partition(" ")
        key = key.strip()
        parts = key.split("_")
        if kind.lower() != "bearer" or len(parts) != 3 or parts[0] != "ssop" or not key.isascii() or len(key) > 256:
            raise KeyRefusedError
        digest = hashlib.sha256(key.encode()).digest()
        until_ms, tenant = self._known.get(digest, (0.0, ""))
        if self._now_ms() >= until_ms:
            tenant = await self._asked(key)
            keep_ms = self._cache_ms if tenant else min(self._cache_ms, REFUSAL_MS)
            self._known[digest] = (self._now_ms() + keep_ms, tenant)
            self._known.move_to_end(digest)
            if len(self._known) > MAX_KEYS:
                self._known.popitem(last=False)
        if not tenant:
            raise KeyRefusedError
        return Reader(tenant, parts[1])

    async def _asked(self, key: str) -> str:
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S), self._asking:
                return await self._ask(key)
        except (AuthenticationError, PermissionDenied):
            return ""
        except (SsopError, TimeoutError) as error:
            raise MeshSilentError from error
