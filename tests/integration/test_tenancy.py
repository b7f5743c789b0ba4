"""No tenant reads or uses what another has: a seeded sample of the campaign of `tests/drill/test_tenancy.py`.

The checker is shown to fail when the tenant is taken out of one of the places that hold it.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cache_service import running_cache
from helpers.redis_server import RedisServer, redis_pair
from helpers.router_tenancy import hostile_mesh, run_campaign, run_router_tenants
from helpers.scripted_mesh import SECRET
from helpers.tenancy import Journal, run_cache_tenants
from ssop_cache import answers
from ssop_cache.core.keys import Layout, TenantKeys
from ssop_cache.core.records import AnswerRecord, decode_record
from ssop_cache.similar import SimilarAnswers
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.memory import MemoryPeer
from ssop_router.resume import Recording, Recordings

Servers = tuple[RedisServer, RedisServer]
SEED = 1


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


async def test_no_tenant_reads_what_another_has(servers: Servers) -> None:
    at_cache, at_router = await run_campaign(servers, 4_000, 400, seed=SEED)
    assert at_cache.crossings + at_router.crossings == []
    # That it was tried: answers came back, and foreign leases, ids and tokens were used.
    assert at_cache.read.total() > 300
    assert at_router.read.total() > 100
    assert at_cache.operations["write with a foreign lease"] > 30
    assert at_cache.read["similar"] > 20
    assert at_cache.operations["flush"] > 0
    assert at_router.operations["resume a foreign request"] > 10
    unavailable = at_cache.failures["STORE_UNAVAILABLE"] + at_router.failures["STORE_UNAVAILABLE"]
    assert unavailable < (at_cache.total + at_router.total) / 100


def one_tenant_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    of_tenant = Layout.of_tenant

    def of_anyone(self: Layout, tenant: str) -> TenantKeys:
        return of_tenant(self, "anyone")

    monkeypatch.setattr(Layout, "of_tenant", of_anyone)


async def run_at_cache(servers: Servers, operations: int = 800) -> Journal:
    async with running_cache(*servers, redis_timeout_ms=10_000) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET))
        return await run_cache_tenants(peer, SECRET, operations, seed=SEED)


async def test_checker_fails_without_the_tenant_in_the_keys(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    one_tenant_for_all(monkeypatch)
    journal = await run_at_cache(servers)
    kinds = {crossing.split(":")[0] for crossing in journal.crossings}
    assert {"follow", "admit follows a generation that the tenant never began"} <= kinds
    # The record says whose it is as well, so that answers do not cross even then.
    assert not {"lookup", "similar"} & kinds


class Anyone(str):
    """Equal to every tenant."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


async def test_checker_fails_without_the_tenant_in_keys_records_and_questions(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode_anyones(data: bytes) -> AnswerRecord:
        return decode_record(data)._replace(tenant=Anyone())

    read = SimilarAnswers._read

    def read_anyones(self: SimilarAnswers, tenant: str, *args: Any, **options: Any) -> Any:
        return read(self, "anyone", *args, **options)

    one_tenant_for_all(monkeypatch)
    monkeypatch.setattr(answers, "decode_record", decode_anyones)
    monkeypatch.setattr(SimilarAnswers, "_read", read_anyones)
    journal = await run_at_cache(servers, 3_000)
    assert {"lookup", "similar"} <= {crossing.split(":")[0] for crossing in journal.crossings}


async def test_checker_fails_without_the_tenant_in_recordings(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Recordings.find

    def find_anyones(self: Recordings, tenant: str, request_id: str) -> Recording:
        for owner, name in self._entries:
            if name == request_id:
                return find(self, owner, name)
        return find(self, tenant, request_id)

    monkeypatch.setattr(Recordings, "find", find_anyones)
    async with running_cache(*servers, redis_timeout_ms=10_000) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET), address="cache")
        async with hostile_mesh(peer) as mesh:
            journal = await run_router_tenants(mesh, 120, seed=SEED)
    assert "resume a foreign request" in {crossing.split(":")[0] for crossing in journal.crossings}
