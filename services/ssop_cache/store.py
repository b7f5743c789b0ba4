# cython: annotation_typing=False
"""One role of Redis behind a call with a bound: at most `timeout_s`, and nothing is ever sent twice.

The bound is on the instances: time during which this process's own loop was late is none of it. A reply that did not
come may belong to a script that ran. So there are no retries. What is sent again is what a server
said that it did not run: a script that it does not know, and a command whose keys it does not have (MOVED, ASK,
TRYAGAIN of a cluster). Each instance has a short circuit of its own, so that a master that is gone costs the keys of
others nothing.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import resources
from typing import Any, Final

from redis.asyncio.client import PubSub
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.core.circuit import Circuit
from ssop_cache.core.scripts import Reply, ScriptCall
from ssop_cache.deployment import Deployment, Instance, Word
from ssop_cache.metrics import CacheMetrics
from ssop_cache.redis_settings import Role
from ssop_cache.refusals import is_full, is_replica, name_of
from ssop_chassis.attention import Attention
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe
from ssop_chassis.pace import Pace
from ssop_chassis.settings import SettingsError

MAX_REDIRECTIONS: Final = 5
"""More than a slot that moves takes; two nodes that name each other would go on for ever."""
_TRY_AGAIN_S: Final = 0.005
_TELL_AGAIN_S: Final = 1.0
_WITH: Final = re.compile(r"^-- with (_\w+)\n", re.MULTILINE)
_SOON: Final = 0.125
"""A part of the bound that is configured, whatever the bound has become since."""
_log = logging.getLogger(__name__)


def load_scripts() -> dict[str, str]:
    """The text of every script, by name. A line `-- with _name` stands for the functions of that file."""
    folder = resources.files("ssop_cache.lua")
    texts = {
        entry.name.removesuffix(".lua"): entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")
    }
    return {
        name: _WITH.sub(lambda line: texts[line[1]], text) for name, text in texts.items() if not name.startswith("_")
    }


class _Shard:
    """An instance as calls see it."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.circuit = Circuit()
        self.task: asyncio.Task[None] | None = None
        self.is_gone = False


class _Route:
    """Where a call is now; redirections change it. While `is_moving` it waits for its slot, and not for a reply."""

    def __init__(self, shard: _Shard) -> None:
        self.shard = shard
        self.is_moving = False


class RedisStore:
    """A bounded, short-circuited client of a role. `verify` is asked of an instance before its circuit closes again."""

    def __init__(
        self,
        role: Role,
        deployment: Deployment,
        metrics: CacheMetrics,
        *,
        timeout_s: float,
        attention: Attention,
        connections: int = 16,
        connection_wait_s: float = 2.0,
        probe_interval_s: float = 0.1,
    ) -> None:
        self.role = role
        self._pace = Pace(timeout_s)
        self._attention = attention
        self._metrics = metrics
        self._connection_wait_s = connection_wait_s
        self._probe_interval_s = probe_interval_s
        self._deployment = deployment
        self._slots = asyncio.Semaphore(connections * deployment.calls_per_connection)
        self._scripts = load_scripts()
        self._digests = {name: _sha1(text) for name, text in self._scripts.items()}
        self._shards: dict[str, _Shard] = {}
        self._learning: asyncio.Task[None] | None = None
        self._told_refusal_s = 0.0
        self.changes = 0
        """Rises whenever an instance is lost or back: who listens may be listening to one that is none any more."""
        self.verify: Callable[[Instance], Awaitable[None]] = self._ping
        metrics.is_store_up.labels(role).set(1)

    @property
    def is_up(self) -> bool:
        """Calls are tried, whatever their key."""
        return self._learning is None and not any(shard.circuit.is_open for shard in self._shards.values())

    @property
    def timeout_s(self) -> float:
        """Most that an instance may cost a call now, in seconds of `clock_s`."""
        return self._pace.bound_s(time.monotonic())

    @property
    def clock_s(self) -> float:
        """The clock of the bounds, in seconds."""
        return self._attention.now_s

    def soon(self) -> AbstractAsyncContextManager[None]:
        """TimeoutError after the time in which an instance that is well answers many times over."""
        return self._attention.timeout(_SOON * self._pace.floor_s)

    async def warm_up(self) -> None:
        """Make the connections that a crowd would need, and let the servers know the scripts. Raises RedisError."""
        for instance in self._deployment.instances():
            await instance.warm_up([("SCRIPT", "LOAD", text) for text in self._scripts.values()])

    @property
    def is_cluster(self) -> bool:
        """Its instances are to be nodes of a cluster."""
        return self._deployment.is_cluster

    def run(self, call: ScriptCall, timeout_s: float | None = None) -> Coroutine[Any, Any, Reply]:
        """Run a script; its reply, within `timeout_s` (None: the configured time).

        Raises STORE_UNAVAILABLE, then the script may or may not have run; and OVERLOADED when no connection gets free.
        """
        known = ("EVALSHA", self._digests[call.script], len(call.keys), *call.keys, *call.args)
        whole = self._scripts[call.script]
        return self._bounded(call.keys[0], known, timeout_s, script=whole)

    async def command(self, *words: str, key: str) -> Any:
        """Run a plain command where a key is, under the same bounds."""
        return await self._bounded(key, words, None)

    async def instances(self) -> Sequence[Instance]:
        """All that take writes now, asked for anew. Raises RedisError, OSError and TimeoutError."""
        await self._deployment.learn()
        return self._deployment.instances()

    @property
    def known_instances(self) -> Sequence[Instance]:
        """All that take writes, as far as is known without asking."""
        return self._deployment.instances()

    async def command_unguarded(self, instance: Instance, *words: str) -> Any:
        """Run a plain command although the circuit may be open: for `verify`. Raises RedisError and TimeoutError."""
        async with self._attention.timeout(self.timeout_s):
            return await instance.send(*words)

    def subscriber(self) -> PubSub:
        """A subscription on a connection of its own. Raises RedisError when no instance is known."""
        return self._deployment.subscriber()

    async def close(self) -> None:
        """Stop probing and drop the connections."""
        tasks = {
            task for task in (self._learning, *(shard.task for shard in self._shards.values())) if task is not None
        }
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._deployment.close()

    # --- a call

    async def _bounded(self, key: str, words: tuple[Word, ...], timeout_s: float | None, *, script: str = "") -> Any:
        route = _Route(self._shard_of(key))
        if self._slots.locked():
            await self._wait_for_slot()
        else:
            await self._slots.acquire()
        try:
            self._refuse_if_open(route.shard)
            started_s = self._attention.now_s
            bound_s = self.timeout_s if timeout_s is None else timeout_s
            try:
                posted = route.shard.instance.post(words) if script else None
                reply = None if posted is None else await self._attention.wait(posted, bound_s)
            except (NoScriptError, AskError, TryAgainError):
                # It did not run.
                posted = None
                bound_s = max(0.0, bound_s - (self._attention.now_s - started_s))
            if posted is None:
                forms = (words, ("EVAL", script, *words[2:])) if script else (words,)
                async with self._attention.timeout(bound_s):
                    reply = await self._send(route, forms)
        except (TimeoutError, RedisTimeoutError) as error:
            if route.is_moving:
                raise self._unavailable("moving") from error
            route.shard.instance.drop_silent()
            self._fail(route.shard, is_gone=False)
            raise self._unavailable("timeout") from error
        except AskError as error:
            self._learn_soon()
            raise self._unavailable("moving") from error
        except ResponseError as error:
            raise self._unavailable(self._take_refusal(route.shard, error)) from error
        except (RedisConnectionError, OSError) as error:
            self._fail(route.shard, is_gone=True)
            raise self._unavailable("connection") from error
        except RedisError as error:
            self._fail(route.shard, is_gone=False)
            raise self._unavailable("protocol") from error
        finally:
            self._slots.release()
        route.shard.circuit.succeed()
        self._pace.observe(self._attention.now_s - started_s, time.monotonic())
        return reply

    async def _send(self, route: _Route, forms: Sequence[tuple[Word, ...]]) -> Any:
        """Send a command to whoever has its keys, in its next form where a server does not know the first."""
        form, redirections, is_asking = 0, 0, False
        while True:
            try:
                return await route.shard.instance.send(*forms[form], is_asking=is_asking)
            except NoScriptError:
                form += 1
                if form == len(forms):
                    raise
            except AskError as error:
                redirections += 1
                if redirections > MAX_REDIRECTIONS:
                    raise
                is_asking = not isinstance(error, MovedError)
                self._metrics.redirections.labels(self.role, "ask" if is_asking else "moved").inc()
                route.shard = self._shard(await self._deployment.redirect(error))
                self._refuse_if_open(route.shard)
            except TryAgainError:
                # Some keys of the slot are here and some have gone ahead; the bound ends this.
                self._metrics.redirections.labels(self.role, "try_again").inc()
                route.is_moving = True
                await asyncio.sleep(_TRY_AGAIN_S)
                route.is_moving = False

    def _take_refusal(self, shard: _Shard, error: ResponseError) -> str:
        """The instance answers and refuses: out of memory, loading, read-only, or a fault in a script. Its kind."""
        now_s = time.monotonic()
        if now_s - self._told_refusal_s >= _TELL_AGAIN_S:
            # While it is full it refuses every call; the metric counts them.
            self._told_refusal_s = now_s
            what = "the store is full: it takes no writes" if is_full(error) else "the store refused a command"
            _log.error(what, extra={"role": self.role, "refusal": name_of(error)})
        if is_replica(error):
            self._fail(shard, is_gone=True)
        elif isinstance(error, ClusterDownError):
            self._learn_soon()
        return "full" if is_full(error) else "refused"

    async def _wait_for_slot(self) -> None:
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
        fault = "is full" if kind == "full" else "does not answer"
        return MeshError(
            ErrorReason.ERROR_REASON_STORE_UNAVAILABLE,
            f"the {self.role} store {fault}",
            metadata={"role": self.role},
        )

    # --- who is there, and who is well

    def _shard_of(self, key: str) -> _Shard:
        instance = self._deployment.owner(key)
        if instance is None:
            self._learn_soon()
            raise self._unavailable("no_owner")
        shard = self._shard(instance)
        self._refuse_if_open(shard)
        return shard

    def _shard(self, instance: Instance) -> _Shard:
        shard = self._shards.get(instance.name)
        if shard is None:
            is_first = not self._shards
            shard = self._shards[instance.name] = _Shard(instance)
            if not is_first:
                # Those that are there at the start are checked before anything is served.
                shard.task = asyncio.ensure_future(self._check(shard))
        shard.instance = instance
        return shard

    def _refuse_if_open(self, shard: _Shard) -> None:
        if shard.circuit.is_open:
            raise self._unavailable("short_circuit")

    async def _check(self, shard: _Shard) -> None:
        """An instance that is new here must fit its role; one that does not answer shows that by itself."""
        try:
            await self.verify(shard.instance)
        except RoleError as error:
            _log.error("an instance is in the wrong role: %s", error, extra={"role": self.role})
            shard.task = None
            self._fail(shard, is_gone=True)
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("a new instance was not checked: %s", describe(error), extra={"role": self.role})

    def _fail(self, shard: _Shard, *, is_gone: bool) -> None:
        if shard.circuit.fail(time.monotonic(), is_gone):
            told = {"role": self.role, "instance": shard.instance.name}
            _log.error("the store does not answer; calls fail at once until it does", extra=told)
            self.changes += 1
            shard.is_gone = is_gone
            self._metrics.is_store_up.labels(self.role).set(0)
            if shard.task is not None:
                shard.task.cancel()
            shard.task = asyncio.ensure_future(self._probe_until_up(shard))

    async def _probe_until_up(self, shard: _Shard) -> None:
        # Who was asked until now may come back as what it is no more.
        await self._deployment.drop(shard.instance)
        while True:
            await asyncio.sleep(self._probe_interval_s)
            try:
                instances = {instance.name: instance for instance in await self.instances()}
                found = instances.get(shard.instance.name)
                if found is not None:
                    shard.instance = found
                    await self.verify(found)
            except (RedisError, OSError, TimeoutError) as error:
                _log.debug("the probe failed: %s", describe(error), extra={"role": self.role})
                continue
            except RoleError as error:
                _log.error("the store came back in the wrong role: %s", error, extra={"role": self.role})
                continue
            if found is None:
                # Others have its keys now.
                del self._shards[shard.instance.name]
            self._learn_pace(shard)
            shard.circuit.close()
            self.changes += 1
            self._tell_up()
            _log.warning("the store answers again", extra={"role": self.role, "instance": shard.instance.name})
            return

    def _learn_pace(self, shard: _Shard) -> None:
        """An instance that was silent for a moment was slow: an answer may take so long."""
        now_s = time.monotonic()
        silent_s = shard.circuit.open_s(now_s) + self.timeout_s
        if not shard.is_gone and silent_s < self._pace.most_s:
            self._pace.observe(silent_s, now_s)

    def _learn_soon(self) -> None:
        if self._learning is None:
            self._learning = asyncio.ensure_future(self._learn())
            self._metrics.is_store_up.labels(self.role).set(0)

    async def _learn(self) -> None:
        """Find out who serves, until somebody says so."""
        try:
            while True:
                try:
                    if await self.instances():
                        return
                except (RedisError, OSError, TimeoutError) as error:
                    _log.debug("who serves is not known: %s", describe(error), extra={"role": self.role})
                await asyncio.sleep(self._probe_interval_s)
        finally:
            self._learning = None
            self._tell_up()

    def _tell_up(self) -> None:
        if self.is_up:
            self._metrics.is_store_up.labels(self.role).set(1)

    async def _ping(self, instance: Instance) -> None:
        await self.command_unguarded(instance, "PING")


class RoleError(SettingsError):
    """An instance whose settings do not fit its role; the text says which and why."""


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
