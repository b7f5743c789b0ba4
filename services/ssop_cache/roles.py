"""The two roles of Redis, checked at the start and each time an instance comes back.

An instance that evicts would lose quotas and leases; one that persists nothing would lose them at a crash; one for both
roles would do either to one of them.
"""

import asyncio
import logging
from typing import Final

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ssop_cache.store import RedisStore, RoleError
from ssop_chassis.logs import describe

_RETRY_S: Final = 0.2
_log = logging.getLogger(__name__)


class RoleChecker:
    """Checks that two stores are two instances, each with the settings of its role."""

    def __init__(self, state: RedisStore, cache: RedisStore) -> None:
        self._state = state
        self._cache = cache

    def install(self) -> None:
        """Let both stores check their role before they are used again after a failure."""
        self._state.verify = self.check_state
        self._cache.verify = self.check_cache

    async def wait_until_right(self) -> None:
        """Return when both answer in their roles. Raises RoleError at once when one answers in a wrong one."""
        while True:
            try:
                await self.check_state()
                await self.check_cache()
            except (RedisError, OSError, TimeoutError) as error:
                _log.warning("waiting for the stores: %s", describe(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if await _run_id(self._state) == await _run_id(self._cache):
                raise RoleError(
                    "state_url and cache_url are one instance: either its eviction would drop quotas and leases, or"
                    " stored answers would fill it until nothing is admitted; start two"
                )
            return

    async def check_state(self) -> None:
        """Raise RoleError unless the state instance keeps what it is given."""
        policy = await _setting(self._state, "maxmemory-policy")
        if policy != "noeviction":
            raise RoleError(
                f"the state instance evicts (maxmemory-policy {policy}): it would drop quotas and leases;"
                " set noeviction"
            )
        if await _setting(self._state, "appendonly") != "yes":
            raise RoleError("the state instance has no AOF: a crash would forget quotas; set appendonly yes")
        if (fsync := await _setting(self._state, "appendfsync")) != "always":
            raise RoleError(f"the state instance answers before the disk has it (appendfsync {fsync}); set always")

    async def check_cache(self) -> None:
        """Raise RoleError unless the cache instance evicts."""
        policy = await _setting(self._cache, "maxmemory-policy")
        if not policy.startswith("allkeys-"):
            raise RoleError(
                f"the cache instance does not evict answers (maxmemory-policy {policy}): once full it would store"
                " nothing more; set allkeys-lfu"
            )


async def _setting(store: RedisStore, name: str) -> str:
    try:
        reply = await store.command_unguarded("CONFIG", "GET", name)
    except (NoPermissionError, ResponseError) as error:
        raise _silent(store, name) from error
    pairs = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    values = {_text(key): _text(value) for key, value in pairs.items()}
    if name not in values:
        raise _silent(store, name)
    return values[name]


def _silent(store: RedisStore, name: str) -> RoleError:
    return RoleError(f"the {store.role} instance does not say its {name}; set is_role_checked = false to go without")


async def _run_id(store: RedisStore) -> str:
    info = await store.command_unguarded("INFO", "server")
    if isinstance(info, dict):
        return str(info.get("run_id"))
    return next(line for line in _text(info).splitlines() if line.startswith("run_id:"))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
