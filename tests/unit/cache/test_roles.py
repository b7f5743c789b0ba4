"""What instances say of themselves, and servers that say less than Redis does."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from ssop_cache.roles import RoleChecker
from ssop_cache.store import RoleError

STATE = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}
CACHE = {"maxmemory-policy": "allkeys-lfu"}
INFO = {"server": {"run_id": "1"}, "cluster": {"cluster_enabled": "0"}, "replication": {"role": "master"}}


class Told:
    """A store with one instance, which says this."""

    is_cluster = False

    def __init__(self, role: str, settings: dict[str, str], info: dict[str, dict[str, str]]) -> None:
        self.role = role
        self._settings, self._info = settings, info

    async def instances(self) -> Sequence[str]:
        return ("one",)

    async def command_unguarded(self, _: str, *words: str) -> Any:
        if words[0] == "INFO":
            return self._info.get(words[1], {})
        return {words[2]: self._settings[words[2]]}


async def check(**info: dict[str, str]) -> None:
    """Check a state that says this in place of what Redis does, and a cache that is Redis."""
    state = Told("state", STATE, {**INFO, **info})
    cache = Told("cache", CACHE, {**INFO, "server": {"run_id": "2"}})
    await RoleChecker(cast("Any", state), cast("Any", cache)).wait_until_right()


async def test_two_masters_with_their_settings_are_right() -> None:
    await check()


async def test_server_that_knows_no_clusters_is_none_of_one() -> None:
    await check(cluster={})


async def test_node_of_a_cluster_is_told() -> None:
    with pytest.raises(RoleError, match="node of a cluster"):
        await check(cluster={"cluster_enabled": "1"})


@pytest.mark.parametrize(("section", "name"), [("server", "run_id"), ("replication", "role")])
async def test_server_that_does_not_say_what_must_be_known_is_refused(section: str, name: str) -> None:
    with pytest.raises(RoleError, match=f"does not say its {name}"):
        await check(**{section: {}})
