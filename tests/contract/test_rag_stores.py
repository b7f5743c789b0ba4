"""What every store of the RAG service keeps to: the embedded one, and Milvus (here milvus-lite, the same client)."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.machine import stretched
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_rag.core.model import Document, Query
from ssop_rag.core.ranking import Ranker, RankerChoice, unit_rows
from ssop_rag.embedded import EmbeddedIndex
from ssop_rag.milvus import MilvusIndex
from ssop_rag.milvus_link import MilvusError, MilvusLink
from ssop_rag.milvus_reader import MilvusReader
from ssop_rag.milvus_rows import digest
from ssop_rag.pool import WorkPool
from ssop_rag.store import PooledStore

DIM = 4
NOW = 1_000_000
EAST, NORTH, UP = unit_rows(np.eye(DIM))[:3]
KINDS = ["embedded", pytest.param("milvus", marks=pytest.mark.needs("milvus_lite"))]


@dataclass
class Opened:
    """A store on a folder, which can be closed and opened again."""

    folder: Path
    kind: str
    rankers: RankerChoice = field(default_factory=RankerChoice)
    embedder: str = "e/1"
    skipped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        def skip(fault: str, count: int) -> None:
            self.skipped[fault] += count

        self.index: Any
        if self.kind == "embedded":
            self.index = EmbeddedIndex(self.folder / "index", self.embedder, DIM, skip, self.rankers)
        else:
            link = MilvusLink(str(self.folder / "lite.db"), "", 10, "FLAT")
            self.index = MilvusIndex(MilvusReader(link, "t", self.embedder, self.rankers, skip), DIM)
        self.pool = WorkPool("store", threads=4, max_queue=64)
        self.store = PooledStore(self.index, self.pool)

    def close(self) -> None:
        self.pool.close()
        self.index.close()

    async def found(self, text: str, vector: Any, *names: str, k: int = 9, tenant: str = "acme") -> list[str]:
        answer = await self.store.search(tenant, names, Query(text, vector), k, now_ms=NOW)
        return [passage.text for passage in answer.passages]


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path, request.param)
    yield made
    made.close()


def doc(document_id: str, *texts: str, vector: Any = EAST, expires_at_ms: int = 0, **attributes: str) -> Document:
    vectors = np.tile(vector, (len(texts), 1))
    return Document(document_id, "title", attributes, expires_at_ms, list(texts), vectors, f"f-{document_id}")


async def test_what_was_acknowledged_is_found(opened: Opened) -> None:
    change = await opened.store.upsert("acme", "faq", [doc("1", "red cat", "blue dog"), doc("2", "x")], now_ms=NOW)
    assert (change.documents, change.passages) == (2, 3)
    assert await opened.found("red", EAST, k=1) == ["red cat"]


async def test_a_replaced_document_leaves_nothing(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "old one", "old two", "old three")], now_ms=NOW)
    await opened.store.upsert("acme", "faq", [doc("1", "new")], now_ms=NOW)
    assert await opened.found("old", EAST) == ["new"]


async def test_deletion(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "a", "b"), doc("2", "c")], now_ms=NOW)
    change = await opened.store.delete("acme", "faq", ["1", "1", "nope"], now_ms=NOW)
    assert (change.documents, change.passages) == (1, 2)
    assert await opened.found("a", EAST) == ["c"]


async def test_deleting_what_is_not_there_keeps_the_version(opened: Opened) -> None:
    version = (await opened.store.upsert("acme", "faq", [doc("1", "a")], now_ms=NOW)).version
    assert (await opened.store.delete("acme", "faq", ["nope"], now_ms=NOW)).version == version
    assert (await opened.store.delete("acme", "no", ["1"], now_ms=NOW)).version == 0


async def test_a_version_never_comes_again(opened: Opened) -> None:
    seen = []
    for _ in range(3):
        seen.append((await opened.store.upsert("acme", "faq", [doc("1", "a")], now_ms=NOW)).version)
        seen.append((await opened.store.drop("acme", "faq", now_ms=NOW)).version)
    assert seen == sorted(set(seen))


async def test_a_dropped_collection_is_unknown_and_empty_when_made_again(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "old")], now_ms=NOW)
    assert (await opened.store.drop("acme", "faq", now_ms=NOW)).documents == 1
    with pytest.raises(MeshError) as caught:
        await opened.found("old", EAST, "faq")
    assert caught.value.reason == ErrorReason.ERROR_REASON_COLLECTION_UNKNOWN
    await opened.store.upsert("acme", "faq", [doc("2", "new")], now_ms=NOW)
    assert await opened.found("old", EAST) == ["new"]


async def test_expiry_hides_deletes_and_raises_the_version(opened: Opened) -> None:
    brief = doc("1", "brief", expires_at_ms=NOW + 10)
    later = doc("2", "later", expires_at_ms=NOW + 20)
    before = (await opened.store.upsert("acme", "faq", [brief, later, doc("3", "kept")], now_ms=NOW)).version
    (stats,) = await opened.store.stats("acme", now_ms=NOW + 9)
    assert (stats.documents, stats.version) == (3, before)
    answer = await opened.store.search("acme", (), Query("brief", EAST), 9, now_ms=NOW + 10)
    assert sorted(passage.text for passage in answer.passages) == ["kept", "later"]
    (stats,) = await opened.store.stats("acme", now_ms=NOW + 10)
    assert (stats.documents, stats.version > before) == (2, True)
    (last,) = await opened.store.stats("acme", now_ms=NOW + 20)
    assert (last.documents, last.version > stats.version) == (1, True)


@pytest.mark.parametrize("tenant", ["other", "acme ", "ACME", "", 'x" or tenant != "', "租户", "a" * 2_000])
async def test_tenants_never_meet(opened: Opened, tenant: str) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "secret")], now_ms=NOW)
    assert await opened.store.stats(tenant, now_ms=NOW) == []
    assert await opened.found("secret", EAST, tenant=tenant) == []
    await opened.store.upsert(tenant, "faq", [doc("1", "own")], now_ms=NOW)
    assert await opened.found("secret", EAST, tenant=tenant) == ["own"]
    await opened.store.drop(tenant, "faq", now_ms=NOW)
    assert await opened.found("secret", EAST) == ["secret"]


@pytest.mark.parametrize("document_id", ['" or 1 == 1 or "', "\\", "'", "a\nb", "é" * 256, "%", "{x}"])
async def test_a_hostile_id_is_only_an_id(opened: Opened, document_id: str) -> None:
    await opened.store.upsert("acme", "faq", [doc(document_id, "mine"), doc("other", "other")], now_ms=NOW)
    held = await opened.store.held("acme", "faq", [document_id], now_ms=NOW)
    assert list(held) == [document_id]
    assert (await opened.store.delete("acme", "faq", [document_id], now_ms=NOW)).documents == 1
    assert await opened.found("mine", EAST) == ["other"]


async def test_only_named_collections_are_searched(opened: Opened) -> None:
    for name in ("a", "b", "c"):
        await opened.store.upsert("acme", name, [doc("1", name)], now_ms=NOW)
    answer = await opened.store.search("acme", ("a", "c"), Query("b", EAST), 9, now_ms=NOW)
    assert sorted(passage.text for passage in answer.passages) == ["a", "c"]
    assert [name for name, _ in answer.versions] == ["a", "c"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ranker", "wanted"),
    [(Ranker.VECTOR, ["north"]), (Ranker.BM25, ["退款 in east"]), (Ranker.HYBRID, ["退款 in east", "north"])],
)
async def test_each_ranker_ranks(kind: str, ranker: Ranker, wanted: list[str], tmp_path: Path) -> None:
    made = Opened(tmp_path, kind, RankerChoice(ranker))
    vectors = {"north": NORTH, "退款 in east": EAST, "up": UP}
    await made.store.upsert("acme", "faq", [doc(t, t, vector=v) for t, v in vectors.items()], now_ms=NOW)
    found = await made.found("申请退款", NORTH)
    made.close()
    assert found[: len(wanted)] == wanted or (ranker is Ranker.HYBRID and set(found[:2]) == set(wanted))
    assert len(found) == (1 if ranker is Ranker.BM25 else 3)


async def test_candidates_of_the_whole_text_are_the_answer(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc(str(n), f"word{n} cat") for n in range(20)], now_ms=NOW)
    query = Query("word7", EAST)
    candidates = await opened.store.candidates("acme", (), query, 8, now_ms=NOW)
    assert len(candidates.hits) == len(candidates.vectors) == 8
    within = await opened.store.search_within("acme", candidates, query, 3, now_ms=NOW)
    plain = await opened.store.search("acme", (), query, 3, now_ms=NOW)
    assert within is not None
    assert [p.hit.document_id for p in within.passages] == [p.hit.document_id for p in plain.passages]
    assert [p.text for p in within.passages] == [p.text for p in plain.passages]


async def test_candidates_of_another_text_answer_only_where_loss_is_allowed(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc(str(n), f"word{n} cat") for n in range(20)], now_ms=NOW)
    candidates = await opened.store.candidates("acme", (), Query("word7", EAST), 4, now_ms=NOW)
    query = Query("word7 word9", NORTH)
    assert await opened.store.search_within("acme", candidates, query, 3, now_ms=NOW) is None
    lossy = await opened.store.search_within("acme", candidates, query, 3, is_lossy=True, now_ms=NOW)
    assert lossy is not None
    assert lossy.passages[0].text == "word7 cat"
    assert {p.hit.document_id for p in lossy.passages} <= {hit.document_id for hit in candidates.hits}


async def test_candidates_are_void_after_a_change(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "a")], now_ms=NOW)
    query = Query("a", EAST)
    candidates = await opened.store.candidates("acme", (), query, 4, now_ms=NOW)
    await opened.store.upsert("acme", "faq", [doc("2", "b")], now_ms=NOW)
    assert await opened.store.search_within("acme", candidates, query, 1, is_lossy=True, now_ms=NOW) is None


async def test_documents_are_listed_once_each_in_pages(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc(f"d{n}", "a", "b", colour="red") for n in range(7)], now_ms=NOW)
    seen, after = [], ""
    while page := (await opened.store.documents("acme", "faq", after, 3, now_ms=NOW))[0]:
        seen += page
        after = page[-1].document_id
    assert sorted(one.document_id for one in seen) == [f"d{n}" for n in range(7)]
    assert {(one.passages, one.title, one.attributes["colour"]) for one in seen} == {(2, "title", "red")}
    assert all(one.fingerprint == f"f-{one.document_id}" for one in seen)


async def test_a_dump_can_be_put_back(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc(f"d{n}", f"a{n}", f"b{n}", x="y") for n in range(30)], now_ms=NOW)
    taken: list[Document] = []
    await opened.store.dump("acme", (), lambda _, document: taken.append(document), now_ms=NOW)
    await opened.store.upsert("acme", "faq", [doc("d0", "changed"), doc("more", "more")], now_ms=NOW)
    change = await opened.store.replace("acme", "faq", taken, now_ms=NOW)
    assert (change.documents, change.passages) == (30, 60)
    again: list[Document] = []
    await opened.store.dump("acme", (), lambda _, document: again.append(document), now_ms=NOW)

    def plain(documents: list[Document]) -> list[Any]:
        return sorted((d.document_id, list(d.passages), dict(d.attributes), d.vectors.tolist()) for d in documents)

    assert plain(again) == plain(taken)


async def test_concurrent_changes_all_count(opened: Opened) -> None:
    changes = await asyncio.gather(
        *(opened.store.upsert("acme", f"c{n % 2}", [doc(f"d{n}", f"text{n}", "x")], now_ms=NOW) for n in range(16))
    )
    assert len({change.version for change in changes}) == 16
    stats = await opened.store.stats("acme", now_ms=NOW)
    assert [(one.documents, one.passages) for one in stats] == [(8, 16), (8, 16)]
    newest = {n % 2: max(c.version for i, c in enumerate(changes) if i % 2 == n % 2) for n in range(2)}
    assert [one.version for one in stats] == [newest[0], newest[1]]


async def test_concurrent_changes_of_one_document_leave_one_of_them_whole(opened: Opened) -> None:
    await asyncio.gather(
        *(
            opened.store.upsert("acme", "c", [doc("d", *[f"r{n}p{i}" for i in range(n + 1)])], now_ms=NOW)
            for n in range(8)
        )
    )
    texts = await opened.found("x", EAST)
    revision = texts[0].split("p")[0]
    assert sorted(texts) == [f"{revision}p{i}" for i in range(int(revision[1:]) + 1)]


async def test_all_is_there_after_it_was_closed_and_opened(opened: Opened) -> None:
    version = (await opened.store.upsert("acme", "faq", [doc("1", "red cat")], now_ms=NOW)).version
    opened.close()
    opened.open()
    assert await opened.found("red", EAST) == ["red cat"]
    assert (await opened.store.upsert("acme", "faq", [doc("2", "x")], now_ms=NOW)).version > version


async def test_vectors_of_another_embedder_are_listed_and_not_found(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "old")], now_ms=NOW)
    opened.close()
    opened.embedder = "e/2"
    opened.open()
    (stats,) = await opened.store.stats("acme", now_ms=NOW)
    assert (stats.documents, stats.embedder) == (1, "e/1")
    assert await opened.found("old", EAST) == []
    await opened.store.upsert("acme", "faq", [doc("1", "new")], now_ms=NOW)
    assert await opened.found("old", EAST) == ["new"]


MILVUS = pytest.mark.parametrize("opened", [KINDS[1]], indirect=True)


def _forge(opened: Opened, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the row of a passage behind the store's back."""
    index: MilvusIndex = opened.index
    name = index._reader.passages("acme")
    (row,) = index._link.query(name, "passage == 0", ["*"])
    forged = {key: value for key, value in row.items() if key != "sparse"}
    change(forged)
    index._link.upsert(name, [forged])


@MILVUS
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"tenant":"acme"', '"tenant":"evil"', "tenant"),
        ('"embedder":"e/1"', '"embedder":"e/0"', "embedder"),
        ('"wire":', '"wire":9', "wire_version"),
        ("{", "", "malformed"),
    ],
)
async def test_a_row_is_checked_whatever_the_filter_said(opened: Opened, old: str, new: str, fault: str) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "text")], now_ms=NOW)
    _forge(opened, lambda row: row.update(head=row["head"].replace(old, new, 1)))
    assert await opened.found("text", EAST) == []
    assert set(opened.skipped) == {fault}


@MILVUS
async def test_expiry_is_checked_in_the_row(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "text", expires_at_ms=NOW + 5)], now_ms=NOW)
    monkeypatch.setattr("ssop_rag.milvus_reader.alive", lambda _: "passage >= 0")
    monkeypatch.setattr(MilvusIndex, "_expire", lambda _self, _tenant, held, _now: held)
    answer = await opened.store.search("acme", (), Query("text", EAST), 9, now_ms=NOW + 5)
    assert (list(answer.passages), opened.skipped) == ([], {"expired": 2})


@MILVUS
async def test_what_a_cut_deletion_left_does_not_come_back(opened: Opened) -> None:
    await opened.store.upsert("acme", "faq", [doc("1", "old")], now_ms=NOW)
    opened.index._link.delete("t_versions", f'key in ["{digest("acme", "faq")}"]')
    await opened.store.upsert("acme", "faq", [doc("2", "new")], now_ms=NOW)
    assert await opened.found("old", EAST) == ["new"]


@MILVUS
async def test_a_head_that_milvus_cannot_hold_is_refused(opened: Opened) -> None:
    with pytest.raises(MeshError) as caught:
        await opened.store.upsert("acme", "faq", [doc("1", "text", note="x" * 70_000)], now_ms=NOW)
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID


@pytest.mark.needs("milvus_lite")
async def test_a_server_that_is_away_is_a_clear_error() -> None:
    link = MilvusLink("http://127.0.0.1:1", "", 0.5, "FLAT")
    pool = WorkPool("store", threads=1, max_queue=4)
    reader = MilvusReader(link, "t", "e/1", RankerChoice(), lambda *_: None)
    store = PooledStore(MilvusIndex(reader, DIM), pool)
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(store.stats("acme", now_ms=NOW), 60)
    pool.close()
    assert caught.value.reason == ErrorReason.ERROR_REASON_STORE_UNAVAILABLE
    assert isinstance(caught.value.__cause__, MilvusError)
    assert "can't be reached" in str(caught.value.__cause__)


@pytest.mark.needs("milvus_lite")
def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = MilvusLink(f"http://127.0.0.1:{server.getsockname()[1]}", "", 0.5, "FLAT")
        started_s = time.monotonic()
        with pytest.raises(MilvusError):
            link.has("x")
        assert time.monotonic() - started_s < stretched(10)


@pytest.mark.needs("milvus_lite")
def test_a_server_that_comes_back_is_used_again(tmp_path: Path) -> None:
    link = MilvusLink(str(tmp_path / "lite.db"), "", 5, "FLAT")
    real, link._uri = link._uri, "http://127.0.0.1:1"
    with pytest.raises(MilvusError):
        link.make_versions("x")
    link._uri = real
    link.make_versions("x")
    assert link.has("x")
    link.close()
