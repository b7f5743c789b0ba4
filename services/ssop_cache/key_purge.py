"""Drops the records of API keys that ended long ago, so that they take no room for ever."""

import asyncio
import logging
from typing import Final

from ssop_cache.core import scripts
from ssop_cache.core.key_ages import find_gone
from ssop_cache.core.keys import KEY_RECORDS
from ssop_cache.store import RedisStore
from ssop_chassis.errors import MeshError
from ssop_chassis.tallies import Counter

_FIRST_S: Final = 60.0
_log = logging.getLogger(__name__)


class KeyPurge:
    """Looks once each `interval_ms`. Several services may: a record is dropped only as it was read."""

    def __init__(self, state: RedisStore, purged: Counter, *, kept_ms: int, interval_ms: int) -> None:
        self._state = state
        self._purged = purged
        self._kept_ms = kept_ms
        self._interval_ms = interval_ms

    async def run(self) -> None:
        """Purge again and again; until cancelled."""
        # A service that has just started has better things to do.
        await asyncio.sleep(_FIRST_S)
        while True:
            try:
                await self.purge()
            except MeshError as error:
                _log.debug("keys were not purged", extra={"reason": error.reason_name})
            await asyncio.sleep(self._interval_ms / 1000)

    async def purge(self) -> int:
        """Purge once; how many records went. Raises as RedisStore."""
        _, *records = await self._state.run(scripts.read_keys(0))
        # The clock of the store, by which no host's can be wrong.
        seconds, _ = await self._state.command("TIME", key=KEY_RECORDS[0])
        gone = list(find_gone(map(scripts.data, records), now_ms=int(seconds) * 1000, kept_ms=self._kept_ms))
        count = 0
        for key_id, record in gone:
            (is_dropped,) = await self._state.run(scripts.drop_key(key_id, record))
            count += scripts.number(is_dropped)
        if count:
            self._purged.inc(count)
            _log.info("keys that ended long ago were purged", extra={"keys": count})
        return count
