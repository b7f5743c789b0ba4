"""Tenants that index the same names and try to reach each other's documents; every answer is held against a model."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from helpers.rag import Caller, document
from ssop.v1 import rag_pb2
from ssop_chassis.errors import MeshError
from ssop_rag.core.record import PASSAGE, TENANT, encode_key

TENANTS: Final = ("acme", "acme\0", "ACME", "acmе")
"""One that is the beginning of another, one that differs in case, one with a Cyrillic letter that looks the same."""
COLLECTIONS: Final = ("docs", "notes", "docs-1", "Docs")
HOSTILE_NAMES: Final = (
    "docs\0", "docs/../notes", "dосs", "docs,notes", "docs:1", "acme/docs", "../docs", "*", "%", "d" * 65, "docs ", "",
    "ＤＯＣＳ", "docs\n", "acme\0docs", "\x00\x00\x00\x04acme",
)  # fmt: skip
WORDS: Final = ("red", "blue", "cat", "dog", "sun", "moon", "天", "气")
_KEYS: Final = (encode_key(PASSAGE, "acme", "docs", "id-1", number=0), encode_key(TENANT, "ACME"))
_IDS: Final = (
    *(f"id-{number}" for number in range(8)),
    *("same", "\0", "a\0b", "id-1\0", "ｉｄ-1", "../id-1", "id-1#2"),
    *(key.decode("latin-1") for key in _KEYS),
)
_EXPECTED: Final = frozenset({"REQUEST_INVALID", "COLLECTION_UNKNOWN", "OVERLOADED"})


def marker(tenant: str) -> str:
    """A word that stands in every document of a tenant and in no other's."""
    return f"owner{TENANTS.index(tenant)}end"


@dataclass
class Tenant:
    """One tenant's calls, and what it must find."""

    name: str
    caller: Caller
    rng: random.Random
    model: dict[str, dict[str, str]] = field(default_factory=dict)
    kept: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    calls: int = 0
    answers: int = 0
    crossings: int = 0

    async def act(self) -> None:
        """One random call."""
        self.calls += 1
        roll = self.rng.random()
        try:
            if roll < 0.80:
                await self._search()
            elif roll < 0.90:
                await self._prefetch_and_search()
            elif roll < 0.95:
                await self._write()
            elif roll < 0.97:
                await self._delete()
            elif roll < 0.98:
                await self._snapshot()
            elif roll < 0.99:
                await self._list()
            else:
                await self.caller.cancel(f"r{self.rng.randrange(16)}")
        except MeshError as error:
            if error.reason_name not in _EXPECTED:
                raise

    def _query(self) -> str:
        words = [self.rng.choice(WORDS) for _ in range(self.rng.randint(1, 4))]
        lures = (marker(self.rng.choice(TENANTS)), self.rng.choice(_IDS), "tenant:acme", "' OR 1=1")
        words.append(self.rng.choice(lures))
        return " ".join(words)

    def _names(self) -> list[str]:
        names = [self.rng.choice(COLLECTIONS) for _ in range(self.rng.randint(0, 2))]
        if self.rng.random() < 0.2:
            names.append(self.rng.choice(HOSTILE_NAMES))
        return names

    def _check(self, response: rag_pb2.RetrieveResponse) -> None:
        self.answers += 1
        for passage in response.passages:
            own = self.model.get(passage.ref.collection, {}).get(passage.ref.document_id)
            if own is None or passage.text != own or marker(self.name) not in passage.text:
                self.crossings += 1

    async def _search(self) -> None:
        request_id = f"r{self.rng.randrange(16)}" if self.rng.random() < 0.5 else ""
        answer = await self.caller.retrieve(self._query(), *self._names(), request_id=request_id, top_k=8)
        self._check(answer)

    async def _prefetch_and_search(self) -> None:
        request_id, query, names = f"r{self.rng.randrange(16)}", self._query(), self._names()
        await self.caller.prefetch(request_id, query, *names, ratio=1.0)
        if self.rng.random() < 0.5:
            await asyncio.sleep(0)
        self._check(await self.caller.retrieve(query, *names, request_id=request_id, top_k=8))

    async def _write(self) -> None:
        collection, name = self.rng.choice(COLLECTIONS), self.rng.choice(_IDS)
        text = f"{' '.join(self.rng.choice(WORDS) for _ in range(5))} {marker(self.name)}"
        made = document(name, text)
        made.attributes.update({"tenant": "acme", "collection": "docs", "document_id": "id-1"})
        done = await self.caller.upsert(collection, made)
        if not done.refused:
            self.model.setdefault(collection, {})[name] = text

    async def _delete(self) -> None:
        collection = self.rng.choice([*COLLECTIONS, *HOSTILE_NAMES])
        if self.rng.random() < 0.1:
            await self.caller.delete(collection, whole=True)
            self.model.pop(collection, None)
            return
        names = [self.rng.choice(_IDS) for _ in range(2)]
        await self.caller.delete(collection, *names)
        for name in names:
            self.model.get(collection, {}).pop(name, None)

    async def _snapshot(self) -> None:
        name = self.rng.choice(["one", "two", *HOSTILE_NAMES])
        if self.rng.random() < 0.5:
            await self.caller.snapshot(name)
            self.kept[name] = {collection: dict(held) for collection, held in self.model.items()}
        else:
            restored = await self.caller.restore(name)
            assert {info.collection for info in restored} == set(self.kept[name])
            self.model |= {collection: dict(held) for collection, held in self.kept[name].items()}

    async def _list(self) -> None:
        for info in await self.caller.collections():
            listed = await self.caller.documents(info.collection)
            names = {one.document_id for one in listed.documents}
            if info.collection not in self.model or names != set(self.model[info.collection]):
                self.crossings += 1
        for snapshot in await self.caller.snapshots():
            if snapshot.snapshot not in self.kept:
                self.crossings += 1


async def run_tenants(tenants: list[Tenant], calls: int) -> None:
    """Let the tenants make so many calls together, all at once; then compare all that each has with its model."""

    async def live(tenant: Tenant) -> None:
        for _ in range(calls // len(tenants)):
            await tenant.act()

    for tenant in tenants:
        for collection in COLLECTIONS:
            held = {name: f"{' '.join(WORDS)} {name} {marker(tenant.name)}" for name in _IDS[:4]}
            await tenant.caller.upsert(collection, *[document(name, text) for name, text in held.items()])
            tenant.model[collection] = held
    await asyncio.gather(*map(live, tenants))
    for tenant in tenants:
        kept = {info.collection: info.documents for info in await tenant.caller.collections()}
        assert kept == {collection: len(held) for collection, held in tenant.model.items()}, tenant.name
        await tenant._list()
