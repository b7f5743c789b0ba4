"""One Redis instance behind a call with a bound: at most `timeout_s`, and nothing is ever sent twice.

A reply that did not come may belong to a script that ran. So there are no retries; the one thing that is sent again is
a script that the server says it does not know, for that one did not run.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import resources
from typing import Any, Literal, cast

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.core.circuit import Circuit
from ssop_cache.core.scripts import Reply, ScriptCall
from ssop_cache.metrics import CacheMetrics
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe
from ssop_chassis.settings import SettingsError

Role = Literal["cache", "state"]
_log = logging.getLogger(__name__)


def load_scripts() -> dict[str, str]:
    """The text of every script, by name."""
    folder = resources.files("ssop_cache.lua")
    return {
        entry.name.removesuffix(".lua"): entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")
    }


class RedisStore:
    """A bounded, short-circuited client of one instance. `verify` is asked before the circuit closes again."""

    def __init__(
        self,
        role: Role,
        url: str,
        metrics: CacheMetrics,
        *,
        timeout_s: float,
        connections: int = 16,
        connection_wait_s: float = 2.0,
        probe_interval_s: float = 0.1,
    ) -> None:
        self.role = role
        self.timeout_s = timeout_s
        self._metrics = metrics
        self._connection_wait_s = connection_wait_s
        self._probe_interval_s = probe_interval_s
        self._redis = Redis.from_url(
            url,
            decode_responses=False,
            # One more than calls may run: the probe's.
            max_connections=connections + 1,
            # The one bound is that of `_bounded`, around connecting, sending and reading; redis-py's own would add a
            # task to every send.
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
        )
        # Subscriptions wait without end, so they have connections of their own.
        self._listener = Redis.from_url(
            url, max_connections=1, socket_timeout=None, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
        )
        self._slots = asyncio.Semaphore(connections)
        self._scripts = load_scripts()
        self._digests = {name: _sha1(text) for name, text in self._scripts.items()}
        self._circuit = Circuit()
        self._probe: asyncio.Task[None] | None = None
        self.verify: Callable[[], Awaitable[None]] = self._ping
        metrics.is_store_up.labels(role).set(1)

    @property
    def is_up(self) -> bool:
        """Calls are tried."""
        return not self._circuit.is_open

    async def run(self, call: ScriptCall, timeout_s: float | None = None) -> Reply:
        """Run a script; its reply, within `timeout_s` (None: the configured time).

        Raises STORE_UNAVAILABLE, then the script may or may not have run; and OVERLOADED when no connection gets free.
        """
        digest = self._digests[call.script]
        arguments = (len(call.keys), *call.keys, *call.args)

        async def send() -> Any:
            try:
                return await self._send("EVALSHA", digest, *arguments)
            except NoScriptError:
                return await self._send("EVAL", self._scripts[call.script], *arguments)

        return cast("Reply", await self._bounded(send, timeout_s))

    async def command(self, *words: str) -> Any:
        """Run a plain command under the same bounds."""
        return await self._bounded(lambda: self._send(*words), None)

    async def command_unguarded(self, *words: str) -> Any:
        """Run a plain command although the circuit may be open: for `verify`. Raises RedisError and TimeoutError."""
        async with asyncio.timeout(self.timeout_s):
            return await self._send(*words)

    def subscriber(self) -> PubSub:
        """A subscription on a connection of its own."""
        return self._listener.pubsub(ignore_subscribe_messages=True)

    async def close(self) -> None:
        """Stop probing and drop the connections."""
        if self._probe is not None:
            self._probe.cancel()
            with suppress(asyncio.CancelledError):
                await self._probe
        await self._redis.aclose()
        await self._listener.aclose()

    def _send(self, *words: str | bytes | int) -> Awaitable[Any]:
        return cast("Awaitable[Any]", self._redis.execute_command(*words))  # type: ignore[no-untyped-call]

    async def _bounded(self, send: Callable[[], Awaitable[Any]], timeout_s: float | None) -> Any:
        if self._circuit.is_open:
            raise self._unavailable("short_circuit")
        await self._take_slot()
        try:
            if self._circuit.is_open:
                raise self._unavailable("short_circuit")
            async with asyncio.timeout(self.timeout_s if timeout_s is None else timeout_s):
                reply = await send()
        except (TimeoutError, RedisTimeoutError) as error:
            self._fail(is_gone=False)
            raise self._unavailable("timeout") from error
        except ResponseError as error:
            # The instance answers and refuses: out of memory, loading, read-only, or a fault in a script.
            _log.error("the store refused a command", extra={"role": self.role, "refusal": _first_word(error)})
            raise self._unavailable("refused") from error
        except (RedisConnectionError, OSError) as error:
            self._fail(is_gone=True)
            raise self._unavailable("connection") from error
        except RedisError as error:
            self._fail(is_gone=False)
            raise self._unavailable("protocol") from error
        finally:
            self._slots.release()
        self._circuit.succeed()
        return reply

    async def _take_slot(self) -> None:
        try:
            async with asyncio.timeout(self._connection_wait_s):
                await self._slots.acquire()
        except TimeoutError as error:
            self._metrics.store_errors.labels(self.role, "no_connection").inc()
            raise MeshError(
                ErrorReason.ERROR_REASON_OVERLOADED, "no connection to the store got free", retry_after_ms=1000
            ) from error

    def _unavailable(self, kind: str) -> MeshError:
        self._metrics.store_errors.labels(self.role, kind).inc()
        return MeshError(
            ErrorReason.ERROR_REASON_STORE_UNAVAILABLE,
            f"the {self.role} store does not answer",
            metadata={"role": self.role},
        )

    def _fail(self, *, is_gone: bool) -> None:
        if self._circuit.fail(asyncio.get_running_loop().time(), is_gone=is_gone):
            _log.error("the store does not answer; calls fail at once until it does", extra={"role": self.role})
            self._metrics.is_store_up.labels(self.role).set(0)
            self._probe = asyncio.ensure_future(self._probe_until_up())

    async def _probe_until_up(self) -> None:
        while True:
            await asyncio.sleep(self._probe_interval_s)
            try:
                await self.verify()
            except (RedisError, OSError, TimeoutError) as error:
                _log.debug("the probe failed: %s", describe(error), extra={"role": self.role})
                continue
            except RoleError as error:
                _log.error("the store came back in the wrong role: %s", error, extra={"role": self.role})
                continue
            self._circuit.close()
            self._metrics.is_store_up.labels(self.role).set(1)
            _log.warning("the store answers again", extra={"role": self.role})
            return

    async def _ping(self) -> None:
        await self.command_unguarded("PING")


class RoleError(SettingsError):
    """An instance whose settings do not fit its role; the text says which and why."""


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _first_word(error: Exception) -> str:
    """The code of a refusal, such as OOM; never its text, which may quote arguments."""
    return type(error).__name__ if not error.args else str(error.args[0]).split(" ", 1)[0][:32]
