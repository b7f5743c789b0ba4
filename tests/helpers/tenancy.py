"""Hostile tenants at the cache service, who use the same keys and ids, and try to read and use what others have.

Every byte that a tenant gets is held against what is its own: whatever it writes carries its mark.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from helpers.cache_service import FOLLOW, HIT, LEASE, CacheClient, pieces
from ssop.v1 import cache_pb2, keys_pb2
from ssop_chassis.call import Metadata
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import PRINCIPAL_METADATA, Principal, sign_principal
from ssop_chassis.memory import MemoryPeer
from ssop_chassis.serving import wall_clock_ms

TENANTS: Final = (
    "acme", "acme\0", "ACME", "acmе", "{acme}", "acme}", "acme:lease", "*", "acme/../b", " acme", "a" * 300, "天气",
)  # fmt: skip
"""One that is the beginning of others, one with a Cyrillic letter that looks the same, names of keys, hash tags."""
KEYS: Final = (*(bytes([number]) * 32 for number in range(48)), b"{}" * 16, b"\xff" * 32, b"acme" * 8)
QUESTIONS: Final = ("How far is it?", "please, how far is it", "Hi! How far is it?", "How near is it?", "多远")
HOSTILE_IDS: Final = ("}:x", "a}b{", "../q", "q\0", "", "x" * 65, "*", "q 1", "é")
_MARK: Final = re.compile(rb"owner(\d+)end")
_TOKENS: Final = 10
_LEASE_MS: Final = 1_500
_EXPECTED: Final = frozenset({"REQUEST_UNKNOWN", "LEASE_LOST", "STORE_UNAVAILABLE", "OVERLOADED"})


def mark(index: int) -> str:
    """What stands in all that a tenant writes."""
    return f"owner{index}end"


def owners(data: bytes) -> set[int]:
    """Whose marks stand in some bytes."""
    return {int(number) for number in _MARK.findall(data)}


@dataclass
class Journal:
    """What was done and what crossed."""

    operations: Counter[str] = field(default_factory=Counter)
    crossings: list[str] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)
    """Answers that came back with a mark, by what brought them: reading was tried at all."""
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Calls made."""
        return sum(self.operations.values())

    def judge(self, index: int, data: bytes, what: str) -> None:
        """Bytes that a tenant got."""
        found = owners(data)
        self.read[what] += bool(found)
        if found - {index}:
            self.crossings.append(f"{what}: tenant {index} got bytes of {sorted(found - {index})}")

    def cross(self, index: int, what: str) -> None:
        """Something that a tenant must not be able to do went well."""
        self.crossings.append(f"{what}: tenant {index}")


class TenantClient(CacheClient):
    """Calls with a real token, and with metadata that names somebody else."""

    def __init__(self, peer: MemoryPeer, tenant: str, secret: bytes, lures: dict[str, str | bytes]) -> None:
        super().__init__(peer, tenant)
        self.tenant = tenant
        self.secret = secret
        self.lures = lures
        self.renew()

    def renew(self) -> None:
        """A fresh token; one lasts for some minutes."""
        self._metadata = {**self.lures, PRINCIPAL_METADATA: token_of(self.tenant, self.secret)}

    async def call_as(self, path: str, request: bytes, metadata: Metadata) -> bytes:
        """A call with metadata of one's own making."""
        return await self._peer.unary(path, request, timeout_s=30, metadata=metadata)


def token_of(tenant: str, secret: bytes, *, age_ms: int = 0) -> bytes:
    """A principal's token."""
    return sign_principal(Principal(tenant, "k1"), secret, now_ms=wall_clock_ms() - age_ms, issuer="router")


@dataclass
class Ground:
    """What the tenants of one run share: the books of open leases, and how much is still to be done."""

    journal: Journal
    left: int
    fences: dict[tuple[int, bytes], int] = field(default_factory=dict)
    ids: dict[int, list[str]] = field(default_factory=dict)
    """Ids of requests that one tenant alone has."""

    def take(self) -> bool:
        """One more operation may begin."""
        self.left -= 1
        return self.left >= 0


class CacheTenant:
    """One tenant's worker. Workers of a tenant share `opened` and `started`: what that tenant itself has done."""

    def __init__(self, index: int, worker: int, client: TenantClient, ground: Ground, own: "Own", seed: int) -> None:
        self.index = index
        self._worker = worker
        self._client = client
        self._ground = ground
        self._journal = ground.journal
        self._own = own
        self._rng = random.Random(f"{seed} {index} {worker}")
        self._turn = 0
        self._unsettled: set[str] = set()
        """Ids whose request the store may still have open: a call did not come back."""
        self._acts: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.52, self._look),
            (0.62, self._ask_similar),
            (0.76, self._generate),
            (0.85, self._follow),
            (0.90, self._steal),
            (0.92, self._settle_foreign),
            (0.94, self._read_usage),
            (0.97, self._forge),
            (0.988, self._hostile_id),
            (0.99, self._flush),
            (1.00, self._read_keys),
        ]

    async def run(self) -> None:
        """Act until the ground is used up."""
        while self._ground.take():
            self._turn += 1
            if self._turn % 500 == 0:
                self._client.renew()
            roll = self._rng.random()
            act = next(act for most, act in self._acts if roll < most)
            try:
                await act()
            except MeshError as error:
                self._journal.failures[error.reason_name] += 1
                if error.reason_name not in _EXPECTED:
                    raise

    def _count(self, name: str) -> None:
        self._journal.operations[name] += 1

    def _key(self) -> bytes:
        return self._rng.choice(KEYS)

    async def _look(self) -> None:
        self._count("lookup")
        key = self._key()
        response = await self._client.lookup(key)
        if response.outcome == HIT:
            self._take_answer(key, response.answer.chunk, "lookup")

    async def _ask_similar(self) -> None:
        """All tenants ask the same questions, and their vectors are the same."""
        self._count("similar")
        found = await self._client.find_similar(self._rng.choice(QUESTIONS))
        if found.HasField("answer"):
            self._take_answer(found.cache_key, found.answer.chunk, "similar")

    async def _flush(self) -> None:
        self._count("flush")
        await self._client.flush(self._rng.choice([b"", self._key()]))

    def _take_answer(self, key: bytes, chunk: bytes, what: str) -> None:
        self._journal.judge(self.index, chunk, what)
        if key not in self._own.committed:
            self._journal.cross(self.index, f"{what} found an answer that the tenant never made")

    async def _generate(self) -> None:
        """Admission, and what follows from it."""
        key, request_id = self._key(), f"q{self._worker}-{self._rng.randrange(8)}"
        self._count("admit")
        others = self._own.admitting[key]
        is_open = request_id in self._unsettled
        self._unsettled.add(request_id)
        self._own.admitting[key] += 1
        try:
            admission = await self._client.admit(request_id, key, tokens=_TOKENS, lease_ms=_LEASE_MS)
        except MeshError as error:
            if error.reason_name != "REQUEST_DUPLICATE":
                raise
            if not is_open:
                self._journal.cross(self.index, "an id that the tenant had settled is in use")
            return
        finally:
            self._own.admitting[key] -= 1
        if admission.outcome != LEASE and not is_open:
            self._unsettled.discard(request_id)
        if admission.outcome == HIT:
            self._take_answer(key, admission.answer.chunk, "admit")
        elif admission.outcome == FOLLOW:
            if key not in self._own.opened and not others and not self._own.admitting[key]:
                self._journal.cross(self.index, "admit follows a generation that the tenant never began")
            await self._read_feed(key)
        elif admission.outcome == LEASE:
            await self._lead(key, request_id, admission.fencing_token)

    async def _lead(self, key: bytes, request_id: str, fence: int) -> None:
        self._own.opened.add(key)
        self._ground.fences[self.index, key] = fence
        text = f"{mark(self.index)}{self._turn}"
        first, second = pieces(text, text)
        try:
            if self._rng.random() < 0.5:
                self._count("append")
                await self._client.append(key, fence, first, lease_ms=_LEASE_MS)
                if self._rng.random() < 0.5:
                    await asyncio.sleep(0)
                rest = second
            else:
                rest = first + second
            self._own.committed.add(key)
            self._count("commit")
            ttl_ms = self._rng.choice((100, 1_000, 10_000))
            is_complete = self._rng.random() < 0.9
            await self._client.commit(key, fence, rest, is_complete=is_complete, ttl_ms=ttl_ms)
            if is_complete and self._rng.random() < 0.5:
                self._count("put similar")
                await self._client.put_similar(self._rng.choice(QUESTIONS), key, ttl_ms=ttl_ms)
        except MeshError as error:
            if error.reason_name != "REQUEST_INVALID":
                raise
            self._journal.cross(self.index, "something else than the tenant's own frames was in its generation")
        finally:
            self._ground.fences.pop((self.index, key), None)
            used = self._rng.randrange(1, _TOKENS)
            self._own.started += used
            self._count("settle")
            charged = await self._client.settle(request_id, used)
            self._unsettled.discard(request_id)
            self._own.settled += charged
            if charged not in {0, used}:
                self._journal.cross(self.index, f"settle charged {charged} for {used}")

    async def _follow(self) -> None:
        await self._read_feed(self._key())

    async def _read_feed(self, key: bytes) -> None:
        self._count("follow")
        async with self._client.open_follow(key) as stream:
            while (message := await stream.read()) is not None:
                chunk = cache_pb2.FollowResponse.FromString(message).chunk
                self._journal.judge(self.index, chunk, "follow")

    async def _steal(self) -> None:
        """Write with the lease of somebody else, whose key and fence are known."""
        others = [(name, fence) for name, fence in self._ground.fences.items() if name[0] != self.index]
        if not others:
            return
        (_, key), fence = self._rng.choice(others)
        if self._ground.fences.get((self.index, key)) == fence:
            return
        self._count("write with a foreign lease")
        chunk = b"".join(pieces(mark(self.index)))
        try:
            if self._rng.random() < 0.5:
                await self._client.append(key, fence, chunk, lease_ms=_LEASE_MS)
            else:
                await self._client.commit(key, fence, chunk)
        except MeshError as error:
            if error.reason_name == "LEASE_LOST":
                return
            # An answer is looked at only when its lease holds.
            if error.reason_name != "REQUEST_INVALID":
                raise
        self._journal.cross(self.index, "a foreign lease was taken")

    async def _settle_foreign(self) -> None:
        """Settle a request that others of the same name may have open; this one's are all settled."""
        self._count("settle a foreign request")
        request_id = f"q{self._worker}-{self._rng.randrange(8)}"
        if request_id in self._unsettled:
            return
        self._own.started += _TOKENS
        if await self._client.settle(request_id, _TOKENS) != 0:
            self._journal.cross(self.index, "a request that the tenant had settled was charged again")

    async def _read_usage(self) -> None:
        """A tenant's counters hold what it has used itself, and nothing that others have."""
        self._count("read usage")
        least = self._own.settled
        # Two, as the day may change.
        days = await self._client.usage(2)
        most = self._own.started
        told = sum(entry.input_tokens + entry.output_tokens for day in days for entry in day.tiers)
        if told > most or told < least:
            self._journal.cross(self.index, f"usage says {told}, the tenant's own is {least} to {most}")

    async def _forge(self) -> None:
        """Tokens of somebody else: of another secret, of another time, with another name within."""
        self._count("forged token")
        other = TENANTS[self._rng.choice([n for n in range(len(TENANTS)) if n != self.index])]
        mine = token_of(self._client.tenant, self._client.secret)
        forged: list[dict[str, Any]] = [
            {PRINCIPAL_METADATA: token_of(other, b"x" * 32)},
            {PRINCIPAL_METADATA: token_of(other, self._client.secret, age_ms=3_600_000)},
            {PRINCIPAL_METADATA: mine[:32] + token_of(other, self._client.secret)[32:]},
            {PRINCIPAL_METADATA: mine[:-1]},
            {"x-tenant": other, "x-tenant-bin": other.encode(), "tenant": other},
            {PRINCIPAL_METADATA: ""},
        ]
        request = cache_pb2.LookupRequest(cache_key=self._key()).SerializeToString()
        try:
            await self._client.call_as("/ssop.v1.CacheService/Lookup", request, self._rng.choice(forged))
        except MeshError as error:
            if error.reason_name != "PRINCIPAL_INVALID":
                raise
            return
        self._journal.cross(self.index, "a forged token was taken")

    async def _hostile_id(self) -> None:
        self._count("hostile id")
        try:
            await self._client.admit(self._rng.choice(HOSTILE_IDS), self._key())
        except MeshError as error:
            if error.reason_name != "REQUEST_INVALID":
                raise
            return
        self._journal.cross(self.index, "a hostile id was taken")

    async def _read_keys(self) -> None:
        """What only routers may: read and write all API keys."""
        self._count("read keys")
        metadata = {PRINCIPAL_METADATA: token_of(self._client.tenant, self._client.secret)}
        try:
            await self._client.call_as(
                "/ssop.v1.KeyStoreService/ReadKeys", keys_pb2.ReadKeysRequest().SerializeToString(), metadata
            )
        except MeshError as error:
            if error.reason_name != "PRINCIPAL_INVALID":
                raise
            return
        self._journal.cross(self.index, "a tenant read the API keys")


@dataclass
class Own:
    """What a tenant itself has done, all workers together."""

    committed: set[bytes] = field(default_factory=set)
    opened: set[bytes] = field(default_factory=set)
    admitting: Counter[bytes] = field(default_factory=Counter)
    """Admissions that run; one of them may have begun a generation and not heard so yet."""
    started: int = 0
    settled: int = 0


async def run_cache_tenants(
    peer: MemoryPeer, secret: bytes, operations: int, *, seed: int, workers: int = 16
) -> Journal:
    """Let all tenants act at once until so many operations were begun; each is one or a few calls."""
    ground = Ground(Journal(), operations)
    tasks = []
    for index, name in enumerate(TENANTS):
        own = Own()
        for worker in range(workers):
            other = TENANTS[(index + 1 + worker) % len(TENANTS)]
            lures: dict[str, str | bytes] = {"x-tenant": "acme", "x-tenant-bin": other.encode(), "x-api-key": "k"}
            client = TenantClient(peer, name, secret, lures)
            tasks.append(asyncio.ensure_future(CacheTenant(index, worker, client, ground, own, seed).run()))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return ground.journal
