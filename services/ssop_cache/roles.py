"""The two roles of Redis, checked at the start and each time an instance comes back or takes over.

An instance that evicts would lose quotas and leases; one that persists nothing would lose them at a crash; one for both
roles would do either to one of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ssop_cache.deployment import Instance
from ssop_cache.store import RedisStore, RoleError
from ssop_chassis.logs import describe

_RETRY_S: Final = 0.2
_log = logging.getLogger(__name__)


class RoleChecker:
    """Checks that two stores share no instance, and that each of them has the settings of its role."""

    def __init__(self, state: RedisStore, cache: RedisStore) -> None:
        self._state = state
        self._cache = cache

    def install(self) -> None:
        """Let both stores check their role before they are used again after a failure."""
        self._state.verify = self.check_state
        self._cache.verify = self.check_cache

    async def wait_until_right(self) -> None:
        """Return when all answer in their roles. Raises RoleError at once when one answers in a wrong one."""
        while True:
            try:
                state = await _check_all(self._state, self.check_state)
                cache = await _check_all(self._cache, self.check_cache)
            except (RedisError, OSError, TimeoutError) as error:
                _log.warning("waiting for the stores: %s", describe(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if state & cache:
                raise RoleError(
                    "state and cache are one instance: either its eviction would drop quotas and leases, or stored"
                    " answers would fill it until nothing is admitted; start two"
                )
            return

    async def check_state(self, instance: Instance) -> None:
        """Raise RoleError unless an instance of the state keeps what it is given."""
        policy = await _setting(self._state, instance, "maxmemory-policy")
        if policy != "noeviction":
            raise RoleError(
                f"the state instance evicts (maxmemory-policy {policy}): it would drop quotas and leases;"
                " set noeviction"
            )
        if await _setting(self._state, instance, "appendonly") != "yes":
            raise RoleError("the state instance has no AOF: a crash would forget quotas; set appendonly yes")
        if (fsync := await _setting(self._state, instance, "appendfsync")) != "always":
            raise RoleError(f"the state instance answers before the disk has it (appendfsync {fsync}); set always")
        await _require_place(self._state, instance)

    async def check_cache(self, instance: Instance) -> None:
        """Raise RoleError unless an instance of the cache evicts."""
        policy = await _setting(self._cache, instance, "maxmemory-policy")
        if not policy.startswith("allkeys-"):
            raise RoleError(
                f"the cache instance does not evict answers (maxmemory-policy {policy}): once full it would store"
                " nothing more; set allkeys-lfu"
            )
        await _require_place(self._cache, instance)


async def _check_all(store: RedisStore, check: Callable[[Instance], Awaitable[None]]) -> set[str]:
    """Check every instance; the ids of their runs."""
    instances = await store.instances()
    if not instances:
        raise RedisConnectionError("no instance is known")
    for instance in instances:
        await check(instance)
    return {await _told(store, instance, "server", "run_id") for instance in instances}


async def _require_place(store: RedisStore, instance: Instance) -> None:
    """It takes writes, of all keys that it is sent."""
    if not store.is_cluster and (await read_info(store, instance, "cluster")).get("cluster_enabled") == "1":
        raise RoleError(f"the {store.role} instance is a node of a cluster: set {store.role}_mode to cluster")
    if (role := await _told(store, instance, "replication", "role")) != "master":
        raise RedisConnectionError(f"the {store.role} instance takes no writes: it is a {role}")


async def _setting(store: RedisStore, instance: Instance, name: str) -> str:
    try:
        reply = await store.command_unguarded(instance, "CONFIG", "GET", name)
    except (NoPermissionError, ResponseError) as error:
        raise _silent(store, name) from error
    pairs = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    values = {_text(key): _text(value) for key, value in pairs.items()}
    if name not in values:
        raise _silent(store, name)
    return values[name]


def _silent(store: RedisStore, name: str) -> RoleError:
    return RoleError(f"the {store.role} instance does not say its {name}; set is_role_checked = false to go without")


async def _told(store: RedisStore, instance: Instance, section: str, name: str) -> str:
    found = (await read_info(store, instance, section)).get(name)
    if found is None:
        raise _silent(store, name)
    return found


async def read_info(store: RedisStore, instance: Instance, section: str) -> dict[str, str]:
    """What an instance says of itself. Raises RedisError and TimeoutError."""
    info = await store.command_unguarded(instance, "INFO", section)
    if isinstance(info, dict):
        return {str(name): str(value) for name, value in info.items()}
    lines = (line.partition(":") for line in _text(info).splitlines())
    return {name: value for name, _, value in lines}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
