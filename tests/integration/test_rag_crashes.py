"""Kills at random moments of a stream of changes: what was acknowledged is there, and no half of anything."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from helpers.rag import HashingEmbedder, document
from helpers.rag_process import RagProcess
from ssop_chassis.errors import MeshError
from ssop_rag.core.model import Document
from ssop_rag.embedded import EmbeddedIndex

ROUNDS = 8
LANES = 3
TENANT = "writer"
SEED = 20261129
NOW_MS = 1_800_000_000_000


def text_of(name: str, revision: int) -> str:
    """A text whose revisions have different numbers of passages; each passage says which it is."""
    return "\n\n".join(
        f"{name} of revision {revision}, paragraph {n}. " + "words " * 60 for n in range(1 + revision % 5)
    )


@dataclass
class Ledger:
    """Revisions by document; 0 is deleted. `pending` are calls without an answer: all of one happened, or nothing."""

    sure: dict[str, int] = field(default_factory=dict)
    pending: list[dict[str, int]] = field(default_factory=list)
    acknowledged: int = 0


async def write(process: RagProcess, ledger: Ledger, lane: int, rng: random.Random) -> None:
    """Change documents of this lane until the service is gone."""
    caller = process.caller(TENANT)
    while True:
        names = rng.sample([f"{lane}-{number}" for number in range(12)], rng.randint(1, 4))
        call = {name: ledger.sure.get(name, 0) + 1 for name in names}
        if rng.random() < 0.2:
            call = dict.fromkeys(names, 0)
        ledger.pending.append(call)
        try:
            if 0 in call.values():
                await caller.delete("notes", *call)
            else:
                await caller.upsert("notes", *[document(name, text_of(name, number)) for name, number in call.items()])
        except MeshError:
            return
        ledger.pending.remove(call)
        ledger.sure |= call
        ledger.acknowledged += 1


def read_index(folder: Path) -> dict[str, int]:
    """The revision of every document that is stored; fails for one with parts of two, or without a part."""
    embedder = HashingEmbedder()
    skipped: Counter[str] = Counter()
    index = EmbeddedIndex(
        folder / "index", embedder.tag, embedder.dim, lambda fault, count: skipped.update({fault: count})
    )
    found: dict[str, int] = {}

    def take(collection: str, stored: Document) -> None:
        revision = int(stored.passages[0].split("revision ")[1].split(",")[0])
        whole = " ".join(stored.passages)
        assert [f"paragraph {n}." in whole for n in range(6)] == [n < 1 + revision % 5 for n in range(6)], stored
        assert all(f"{stored.document_id} of revision {revision}," in passage for passage in stored.passages)
        found[stored.document_id] = revision

    try:
        index.dump(TENANT, (), take, NOW_MS)
    finally:
        index.close()
    assert not skipped
    return found


def settle(ledger: Ledger, found: dict[str, int]) -> None:
    """Hold what is stored against the ledger; what had no answer is known from now on."""
    for call in ledger.pending:
        after = {name: found.get(name, 0) for name in call}
        before = {name: ledger.sure.get(name, 0) for name in call}
        assert after in (call, before), "a call happened by half"
        ledger.sure |= after
    ledger.pending.clear()
    assert found == {name: revision for name, revision in ledger.sure.items() if revision}


async def test_kills_at_random_moments_lose_nothing_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    ledger = Ledger()
    process = RagProcess(tmp_path, module="helpers.hashing_rag")
    for number in range(ROUNDS):
        process.start()
        lanes = [random.Random(f"{SEED} {number} {lane}") for lane in range(LANES)]
        writers = [asyncio.ensure_future(write(process, ledger, lane, its)) for lane, its in enumerate(lanes)]
        # A moment by the clock, so that the kill meets whatever the service does then.
        await asyncio.sleep(rng.uniform(0.05, 1.5))
        process.kill()
        await asyncio.gather(*writers)
        settle(ledger, read_index(tmp_path))
    assert ledger.acknowledged > 10 * ROUNDS
    with process:
        caller = process.caller(TENANT)
        (info,) = await caller.collections()
        assert info.documents == sum(revision > 0 for revision in ledger.sure.values())
        for name, revision in ledger.sure.items():
            answer = await caller.retrieve(f"{name} of revision {revision}", top_k=32)
            own = [p.text for p in answer.passages if p.ref.document_id == name]
            assert bool(own) == bool(revision)
            assert all(f"of revision {revision}," in text for text in own)
