"""Many requests in one call of the cache service, each under its own principal."""

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from helpers.cache_service import CacheUnderTest, answer, pieces, running_cache
from helpers.redis_server import RedisServer, redis_pair
from ssop.v1.cache_pb2 import (
    AdmitRequest,
    BatchEntry,
    BatchOutcome,
    CacheOutcome,
    CommitRequest,
    RunBatchRequest,
    RunBatchResponse,
    SettleRequest,
)
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import Usage
from ssop_cache.answers import AnswerStore, Fresh
from ssop_cache.batches import MAX_ENTRIES
from ssop_chassis.call import Metadata
from ssop_chassis.errors import MeshError, parse_status
from ssop_chassis.identity import Principal

KEY = b"\1" * 32
MONTH_MS = 2_678_400_000
"""A window of the budget whose end no test sees."""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_pair() as pair:
        yield pair


@pytest.fixture
async def under_test(servers: tuple[RedisServer, RedisServer]) -> AsyncIterator[CacheUnderTest]:
    for server in servers:
        server.ask("FLUSHALL")
    async with running_cache(*servers, budget_tokens=100, budget_window_ms=MONTH_MS) as running:
        yield running


async def run(under_test: CacheUnderTest, entries: Sequence[BatchEntry], tenant: str = "mesh") -> list[BatchOutcome]:
    message = await under_test.peer.unary(
        "/ssop.v1.CacheService/RunBatch",
        RunBatchRequest(entries=entries).SerializeToString(),
        timeout_s=30,
        metadata={"x-tenant-bin": tenant.encode()},
    )
    return list(RunBatchResponse.FromString(message).outcomes)


def admit(tenant: str, request_id: str, *, tokens: int = 10, key: bytes = b"") -> BatchEntry:
    request = AdmitRequest(request_id=request_id, cache_key=key, reserve_tokens=tokens, lease_ms=60_000)
    return BatchEntry(principal=tenant.encode(), admit=request)


async def test_a_budget_holds_within_a_batch(under_test: CacheUnderTest) -> None:
    outcomes = await run(under_test, [admit("acme", f"r{n}", tokens=30) for n in range(10)])
    kinds = [str(outcome.WhichOneof("outcome")) for outcome in outcomes]
    assert sorted(kinds) == ["admitted"] * 3 + ["status"] * 7
    refused = next(outcome for outcome in outcomes if outcome.HasField("status"))
    assert parse_status(refused.status).reason_name == "QUOTA_EXHAUSTED"


async def test_of_a_batch_on_one_key_one_leads(under_test: CacheUnderTest) -> None:
    outcomes = await run(under_test, [admit("acme", f"k{n}", tokens=1, key=KEY) for n in range(32)])
    leaders = [one for one in outcomes if one.admitted.outcome == CacheOutcome.CACHE_OUTCOME_LEASE]
    followers = [one for one in outcomes if one.admitted.outcome == CacheOutcome.CACHE_OUTCOME_FOLLOW]
    assert (len(leaders), len(followers)) == (1, 31)


async def test_each_entry_is_of_its_own_tenant(under_test: CacheUnderTest) -> None:
    outcomes = await run(under_test, [admit("acme", "a", tokens=90), admit("other", "b", tokens=90)])
    assert [outcome.WhichOneof("outcome") for outcome in outcomes] == ["admitted", "admitted"]
    assert (await under_test.client("acme").admit("c", tokens=0)).budget_left_tokens == 10


async def test_admissions_and_settlements_go_together(under_test: CacheUnderTest) -> None:
    await run(under_test, [admit("acme", "s", tokens=50)])
    settle = BatchEntry(
        principal=b"acme", settle=SettleRequest(request_id="s", usage=Usage(input_tokens=3, output_tokens=4))
    )
    outcomes = await run(under_test, [settle, admit("acme", "t"), settle])
    assert sorted(one.settled.charged_tokens for one in outcomes if one.HasField("settled")) == [0, 7]


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1])
async def test_no_number_of_one_entry_is_the_trouble_of_another(under_test: CacheUnderTest, number: int) -> None:
    strange = admit("acme", "a", key=KEY)
    strange.admit.max_age_ms = number
    outcomes = await run(under_test, [strange, admit("other", "b", key=KEY)])
    assert [one.admitted.outcome for one in outcomes] == [CacheOutcome.CACHE_OUTCOME_LEASE] * 2
    ends = [
        conclude(name, request_id, fence, chunk=answer())
        for name, request_id, fence in (
            ("acme", "a", number),
            ("other", "b", outcomes[1].admitted.fencing_token),
        )
    ]
    of_strange, of_other = await run(under_test, ends)
    assert (of_strange.WhichOneof("end"), of_strange.settled.charged_tokens) == ("commit_status", 4)
    assert parse_status(of_strange.commit_status).reason_name == "LEASE_LOST"
    assert of_other.WhichOneof("end") == "committed"


def conclude(
    tenant: str, request_id: str, fence: int, *, chunk: bytes, key: bytes = KEY, is_all: bool = True
) -> BatchEntry:
    commit = CommitRequest(cache_key=key, fencing_token=fence, chunk=chunk, is_complete=True, model="m", is_all=is_all)
    settle = SettleRequest(request_id=request_id, usage=Usage(output_tokens=4))
    return BatchEntry(principal=tenant.encode(), settle=settle, commit=commit)


async def test_an_answer_is_stored_and_charged_in_one_call(under_test: CacheUnderTest) -> None:
    (admitted,) = await run(under_test, [admit("acme", "a", key=KEY)])
    (outcome,) = await run(under_test, [conclude("acme", "a", admitted.admitted.fencing_token, chunk=answer())])
    assert (outcome.WhichOneof("end"), outcome.settled.charged_tokens) == ("committed", 4)
    found = (await under_test.client("acme").admit("b", KEY)).answer
    assert (found.chunk, found.model) == (answer(), "m")


async def test_what_was_appended_is_stored_with_the_rest(under_test: CacheUnderTest) -> None:
    client = under_test.client("acme")
    first, rest = pieces("one", "two")
    fence = (await client.admit("a", KEY)).fencing_token
    await client.append(KEY, fence, first)
    (outcome,) = await run(under_test, [conclude("acme", "a", fence, chunk=rest, is_all=False)])
    assert outcome.WhichOneof("end") == "committed"
    assert (await client.admit("b", KEY)).answer.chunk == first + rest


async def test_an_answer_whose_lease_the_state_forgot_is_taken_back(
    under_test: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    (admitted,) = await run(under_test, [admit("acme", "a", key=KEY)])
    # As a failover may.
    servers[0].ask("FLUSHALL")
    (outcome,) = await run(under_test, [conclude("acme", "a", admitted.admitted.fencing_token, chunk=answer())])
    assert parse_status(outcome.commit_status).reason_name == "LEASE_LOST"
    assert (await under_test.client("acme").admit("b", KEY)).outcome == CacheOutcome.CACHE_OUTCOME_LEASE


async def test_what_is_taken_back_is_no_later_answer(
    under_test: CacheUnderTest, servers: tuple[RedisServer, RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all = AnswerStore.put_all

    async def put_both(store: AnswerStore, tenant: str, fresh: Sequence[Fresh]) -> Sequence[bool]:
        """As where the state is lost meanwhile, and who gets the lease then is quick."""
        stored = await put_all(store, tenant, fresh)
        servers[0].ask("FLUSHALL")
        one = fresh[0]
        await put_all(store, tenant, [Fresh(one.cache_key, one.fence + 1, answer("later"), one.model, one.ttl_ms)])
        return stored

    (admitted,) = await run(under_test, [admit("acme", "a", key=KEY)])
    monkeypatch.setattr(AnswerStore, "put_all", put_both)
    (outcome,) = await run(under_test, [conclude("acme", "a", admitted.admitted.fencing_token, chunk=answer())])
    assert parse_status(outcome.commit_status).reason_name == "LEASE_LOST"
    assert (await under_test.client("acme").admit("b", KEY)).answer.chunk == answer("later")


async def test_a_lease_that_lapsed_stores_nothing(under_test: CacheUnderTest) -> None:
    client = under_test.client("acme")
    fence = (await client.admit("a", KEY, lease_ms=1)).fencing_token
    other = 0
    while not other:
        # Until it has lapsed this one follows.
        other = (await client.admit("b", KEY)).fencing_token
    (outcome,) = await run(under_test, [conclude("acme", "a", fence, chunk=answer())])
    assert parse_status(outcome.commit_status).reason_name == "LEASE_LOST"
    (outcome,) = await run(under_test, [conclude("acme", "b", other, chunk=answer("the other's"))])
    assert outcome.WhichOneof("end") == "committed"
    assert (await client.admit("c", KEY)).answer.chunk == answer("the other's")


async def test_a_call_that_is_repeated_charges_and_stores_once(under_test: CacheUnderTest) -> None:
    (admitted,) = await run(under_test, [admit("acme", "a", key=KEY)])
    entry = conclude("acme", "a", admitted.admitted.fencing_token, chunk=answer())
    outcomes = [*await run(under_test, [entry, entry]), *await run(under_test, [entry])]
    assert [one.settled.charged_tokens for one in outcomes] == [4, 0, 0]
    assert [one.WhichOneof("end") for one in outcomes] == ["committed", "commit_status", "commit_status"]


async def test_a_stale_token_stores_nothing_and_settles_all_the_same(under_test: CacheUnderTest) -> None:
    (admitted,) = await run(under_test, [admit("acme", "a", key=KEY)])
    (outcome,) = await run(under_test, [conclude("acme", "a", admitted.admitted.fencing_token - 1, chunk=answer())])
    assert parse_status(outcome.commit_status).reason_name == "LEASE_LOST"
    assert outcome.settled.charged_tokens == 4
    assert not (await under_test.client("acme").admit("b", KEY, no_lease=True)).answer.chunk


async def test_an_answer_that_is_not_whole_is_given_up_and_settled(under_test: CacheUnderTest) -> None:
    (admitted,) = await run(under_test, [admit("acme", "a", key=KEY)])
    (outcome,) = await run(under_test, [conclude("acme", "a", admitted.admitted.fencing_token, chunk=b"junk")])
    assert parse_status(outcome.commit_status).reason_name == "REQUEST_INVALID"
    assert outcome.settled.charged_tokens == 4
    again = await under_test.client("acme").admit("b", KEY)
    assert again.outcome == CacheOutcome.CACHE_OUTCOME_LEASE


async def test_a_malformed_settlement_keeps_no_answer_from_being_stored(under_test: CacheUnderTest) -> None:
    (admitted,) = await run(under_test, [admit("acme", "a", key=KEY)])
    entry = conclude("acme", "bad id!", admitted.admitted.fencing_token, chunk=answer())
    (outcome,) = await run(under_test, [entry])
    assert parse_status(outcome.status).reason_name == "REQUEST_INVALID"
    assert outcome.WhichOneof("end") == "committed"


async def test_what_is_stored_in_one_call_is_each_its_own(under_test: CacheUnderTest) -> None:
    keys = [bytes([n]) * 32 for n in range(8)]
    admitted = await run(under_test, [admit("acme", f"k{key[0]}", tokens=1, key=key) for key in keys])
    fences = [one.admitted.fencing_token for one in admitted]
    assert len(set(fences)) == len(keys)
    texts = [answer(f"text {n}") for n in range(8)]
    await run(
        under_test,
        [conclude("acme", f"k{key[0]}", fences[n], chunk=texts[n], key=key) for n, key in enumerate(keys)],
    )
    found = await run(under_test, [admit("acme", f"l{key[0]}", tokens=1, key=key) for key in keys])
    assert [one.admitted.answer.chunk for one in found] == texts


async def test_a_full_state_refuses_those_alone_that_it_must_write(
    under_test: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    (admitted,) = await run(under_test, [admit("acme", "a", tokens=1, key=KEY)])
    await run(under_test, [conclude("acme", "a", admitted.admitted.fencing_token, chunk=answer())])
    servers[0].ask("CONFIG", "SET", "maxmemory", "1")
    try:
        entries = [admit("acme", "b", tokens=1, key=b"\2" * 32), admit("acme", "c", key=KEY)]
        missed, hit = await run(under_test, entries)
    finally:
        servers[0].ask("CONFIG", "SET", "maxmemory", "0")
    assert parse_status(missed.status).reason_name == "STORE_UNAVAILABLE"
    assert hit.admitted.answer.chunk == answer()


async def test_a_full_state_lets_a_generation_end_that_has_no_reservation_left(
    under_test: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    client = under_test.client("acme")
    fence = (await client.admit("a", KEY, lease_ms=60_000)).fencing_token
    await client.settle("a", 1)
    servers[0].ask("CONFIG", "SET", "maxmemory", "1")
    try:
        await client.commit(KEY, fence, answer())
    finally:
        servers[0].ask("CONFIG", "SET", "maxmemory", "0")
    assert (await client.admit("b", KEY)).answer.chunk == answer()


async def test_a_commit_without_a_settlement_is_refused(under_test: CacheUnderTest) -> None:
    entry = BatchEntry(principal=b"acme", commit=CommitRequest(cache_key=KEY))
    (outcome,) = await run(under_test, [entry])
    assert parse_status(outcome.status).reason_name == "REQUEST_INVALID"
    assert parse_status(outcome.commit_status).reason_name == "REQUEST_INVALID"


async def test_an_end_under_a_principal_that_is_refused_is_refused_too(
    servers: tuple[RedisServer, RedisServer],
) -> None:
    def refuse(metadata: Metadata) -> Principal:
        raise MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, "it is over")

    async with running_cache(*servers, authenticate=refuse) as under_test:
        (outcome,) = await run(under_test, [conclude("acme", "a", 1, chunk=answer())])
    said = [parse_status(status).reason_name for status in (outcome.status, outcome.commit_status)]
    assert said == ["PRINCIPAL_INVALID"] * 2


async def test_only_routers_send_batches(under_test: CacheUnderTest) -> None:
    with pytest.raises(MeshError, match="only routers"):
        await run(under_test, [admit("other", "a")], tenant="acme")


async def test_a_batch_is_bounded(under_test: CacheUnderTest) -> None:
    with pytest.raises(MeshError, match="entries"):
        await run(under_test, [admit("acme", f"r{n}", tokens=0) for n in range(MAX_ENTRIES + 1)])


async def test_an_entry_that_is_malformed_spoils_no_other(under_test: CacheUnderTest) -> None:
    outcomes = await run(under_test, [admit("acme", "bad id!"), BatchEntry(principal=b"acme"), admit("acme", "good")])
    assert [outcome.WhichOneof("outcome") for outcome in outcomes] == ["status", "status", "admitted"]
    assert parse_status(outcomes[0].status).reason_name == "REQUEST_INVALID"
    assert parse_status(outcomes[1].status).reason_name == "REQUEST_INVALID"
