"""Hostile tenants at a router: the same prompts, ids and conversations, and all that names a request of others."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from helpers.cache_service import running_cache
from helpers.redis_server import RedisServer
from helpers.scripted_mesh import RESUME, SECRET, Mesh, ask, run_router
from helpers.scripted_node import GOOD, ScriptedNode, encode, node_status_chunk
from helpers.session_client import open_session
from helpers.tenancy import TENANTS, Ground, Journal, mark, run_cache_tenants, token_of
from ssop.v1 import mesh_pb2, router_pb2, usage_pb2
from ssop.v1.router_pb2 import CacheOptions
from ssop_chassis.call import Call
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import PRINCIPAL_METADATA
from ssop_chassis.memory import MemoryPeer, MemoryStream

TRACE: Final = "/ssop.v1.RouterService/GetTrace"
USAGE: Final = "/ssop.v1.UsageService/GetUsage"
WINDOW_MS: Final = 2_000
TEXTS: Final = tuple(f"How is the mood of {number}?" for number in range(40))
POLITE: Final = ("", "", "Please: ", "Hi. ")
"""Other words for the same question, which a similar answer may serve."""
_EXPECTED: Final = frozenset(
    {
        "REQUEST_UNKNOWN",
        "REQUEST_DUPLICATE",
        "GENERATION_INTERRUPTED",
        "CANCELLED",
        "OVERLOADED",
        "DEADLINE_EXCEEDED",
        "NO_BACKEND",
    }
)


def node_of_tenants() -> ScriptedNode:
    """A node whose documents carry the mark of the tenant that its caller's token names."""
    documents = {name: encode(GOOD.replace("fine", mark(index))) for index, name in enumerate(TENANTS)}
    rng = random.Random(7)

    async def script(call: Call, _: Any) -> None:
        await call.write(node_status_chunk())
        for chunk in documents[call.principal.tenant]:
            if rng.random() < 0.2:
                # Long enough for others to follow, to resume and to leave.
                await asyncio.sleep(0.005)
            await call.write(chunk)

    return ScriptedNode("full-1", [mesh_pb2.TIER_FULL], script)


@asynccontextmanager
async def hostile_mesh(cache_peer: MemoryPeer, **settings: Any) -> AsyncIterator[Mesh]:
    """A router on a real cache service, with keys for all tenants."""
    values: dict[str, Any] = {
        "max_in_flight": 4_096,
        "admission_timeout_ms": 5_000,
        "settle_timeout_ms": 5_000,
        "similar_timeout_ms": 2_000,
        "similar": [{"tenant": tenant, "allow_hits": True} for tenant in TENANTS],
    } | settings
    async with run_router({"full-1": node_of_tenants()}, cache_peer=cache_peer, **values) as mesh:
        yield mesh


class RouterTenant:
    """One worker of a tenant. All tenants use the ids that begin with `s`; those that begin with `x` are its own."""

    def __init__(self, mesh: Mesh, index: int, worker: int, ground: Ground, seed: int) -> None:
        self._mesh = mesh
        self.index = index
        self._worker = worker
        self._ground = ground
        self._journal = ground.journal
        self._rng = random.Random(f"{seed} router {index} {worker}")
        self._turn = 0
        self._kept: list[str] = []
        self._key = mesh.keys.of(TENANTS[index])
        self._acts: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.50, self._generate),
            (0.62, self._leave_and_resume),
            (0.74, self._resume_foreign),
            (0.82, self._trace_foreign),
            (0.94, self._session),
            (1.00, self._usage_of_others),
        ]

    async def run(self) -> None:
        """Act until the ground is used up."""
        while self._ground.take():
            self._turn += 1
            if self._turn % 50 == 0:
                # The node remembers what it was asked, for other tests.
                for node in self._mesh.nodes.values():
                    node.forget()
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

    def _metadata(self) -> dict[str, str | bytes]:
        """The tenant's key, and what would make it another if anybody looked at it."""
        other = self._rng.choice(TENANTS)
        lures: list[dict[str, str | bytes]] = [
            {},
            {"x-tenant": "acme", "x-tenant-bin": other.encode()},
            {PRINCIPAL_METADATA: token_of(other, SECRET)},
            {PRINCIPAL_METADATA: token_of(other, b"x" * 32)},
        ]
        return {"authorization": f"Bearer {self._key}", **self._rng.choice(lures)}

    def _open(self, method: str, request: Any) -> MemoryStream:
        return self._mesh.peer.open(method, request.SerializeToString(), timeout_s=20, metadata=self._metadata())

    def _request(self, request_id: str, **fields: Any) -> router_pb2.GenerateRequest:
        policy = self._rng.choice(("full", "full", "full", "full,no_cache"))
        conversation = self._rng.choice(("", "c1", "c2"))
        text = self._rng.choice(POLITE) + self._rng.choice(TEXTS)
        fields["cache"] = CacheOptions(allow_similar=self._rng.random() < 0.5)
        return ask(text, request_id=request_id, policy=policy, conversation_id=conversation, **fields)

    async def _read(self, stream: MemoryStream, what: str, most: int = 1_000) -> int:
        """Read up to so many chunks; how many came."""
        count = 0
        while count < most and (chunk := await stream.read()) is not None:
            count += 1
            self._journal.judge(self.index, chunk, what)
        return count

    async def _generate(self) -> None:
        self._count("generate")
        request_id = self._rng.choice(("", f"s{self._worker}-{self._rng.randrange(4)}"))
        method = "/ssop.v1.RouterService/Generate"
        async with self._open(method, self._request(request_id)) as stream:
            await self._read(stream, "generate")

    def _new_id(self) -> str:
        request_id = f"x{self.index}-{self._worker}-{self._turn}"
        self._kept = [*self._kept[-7:], request_id]
        known = self._ground.ids.setdefault(self.index, [])
        known.append(request_id)
        del known[:-64]
        return request_id

    async def _leave_and_resume(self) -> None:
        """Half of the ids are shared with other tenants, which resume theirs at the same time."""
        is_shared = self._rng.random() < 0.5
        request_id = f"s{self._worker}-r{self._rng.randrange(3)}" if is_shared else self._new_id()
        self._count("generate and leave")
        request = self._request(request_id, resume_window_ms=WINDOW_MS)
        async with self._open("/ssop.v1.RouterService/Generate", request) as stream:
            await self._read(stream, "generate", most=self._rng.randrange(4))
        self._count("resume")
        resumption = router_pb2.ResumeRequest(request_id=request_id, after_seq=self._rng.randrange(3))
        async with self._open(RESUME, resumption) as stream:
            await self._read(stream, "resume")

    def _foreign_id(self) -> str | None:
        others = [ids for index, ids in self._ground.ids.items() if index != self.index and ids]
        return self._rng.choice(self._rng.choice(others)) if others else None

    async def _resume_foreign(self) -> None:
        await self._ask_foreign("resume a foreign request", RESUME, router_pb2.ResumeRequest)

    async def _trace_foreign(self) -> None:
        await self._ask_foreign("trace a foreign request", TRACE, router_pb2.GetTraceRequest)

    async def _ask_foreign(self, what: str, method: str, kind: Any) -> None:
        request_id = self._foreign_id()
        if request_id is None:
            return
        self._count(what)
        try:
            async with self._open(method, kind(request_id=request_id)) as stream:
                await self._read(stream, what)
        except MeshError as error:
            if error.reason_name != "REQUEST_UNKNOWN":
                raise
            return
        self._journal.cross(self.index, what)

    async def _session(self) -> None:
        """A session with ids that other tenants use on theirs."""
        names = [f"s{number}" for number in range(self._rng.randint(1, 3))]
        async with open_session(self._mesh, policy="full", key=self._key) as client:
            for name in names:
                self._count("session request")
                text = self._rng.choice(TEXTS)
                await client.begin(name, text[:8], is_complete=False)
                await client.send(name, piece=text[8:])
                await client.send(name, commit=router_pb2.SessionCommit())
            await client.until_finished(*names)
            for name in names:
                for frame in client.frames.get(name, []):
                    self._journal.judge(self.index, frame.SerializeToString(), "session")

    async def _usage_of_others(self) -> None:
        """What another tenant used; the key has no scope `admin`."""
        self._count("usage of a foreign tenant")
        other = TENANTS[(self.index + 1 + self._rng.randrange(len(TENANTS) - 1)) % len(TENANTS)]
        try:
            async with self._open(USAGE, usage_pb2.GetUsageRequest(days=1, tenant=other)) as stream:
                await stream.read()
        except MeshError as error:
            if error.reason_name != "SCOPE_MISSING":
                raise
            return
        self._journal.cross(self.index, "usage of a foreign tenant")


async def run_router_tenants(mesh: Mesh, operations: int, *, seed: int, workers: int = 4) -> Journal:
    """Let all tenants act at once until so many operations were begun; each is one or a few calls."""
    ground = Ground(Journal(), operations)
    tasks = [
        asyncio.ensure_future(RouterTenant(mesh, index, worker, ground, seed).run())
        for index in range(len(TENANTS))
        for worker in range(workers)
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return ground.journal


async def run_campaign(
    servers: tuple[RedisServer, RedisServer], calls: int, routed: int, *, seed: int
) -> list[Journal]:
    """Both campaigns, each on the cache service over these instances: `calls` at the service, `routed` at a router."""
    async with running_cache(*servers, redis_timeout_ms=10_000, redis_connections=64) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET), address="cache")
        journals = [await run_cache_tenants(peer, SECRET, calls, seed=seed)]
        async with hostile_mesh(peer) as mesh:
            journals.append(await run_router_tenants(mesh, routed, seed=seed))
    return journals
