"""Documents over the in-memory transport: unchanged ones, lists, limits, snapshots."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.rag import Caller, HashingEmbedder, RagUnderTest, document, refs
from ssop_chassis.errors import MeshError


@pytest.fixture
async def rag(tmp_path: Path) -> AsyncIterator[RagUnderTest]:
    async with RagUnderTest(tmp_path / "index", max_tenant_passages=20, max_snapshots=2) as service:
        yield service


@pytest.fixture
def acme(rag: RagUnderTest) -> Caller:
    return rag.caller("acme")


async def test_an_unchanged_document_is_not_embedded_again(rag: RagUnderTest, acme: Caller) -> None:
    first = await acme.upsert("faq", document("1", "one", title="t"))
    rag.embedder.passages.clear()
    again = await acme.upsert("faq", document("1", "one", title="t"))
    assert (again.documents, again.index_version) == (0, first.index_version)
    assert list(again.unchanged_document_ids) == ["1"]
    assert rag.embedder.passages == []


async def test_only_what_changed_is_embedded(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"), document("2", "two"), document("3", "three", title="old"))
    rag.embedder.passages.clear()
    done = await acme.upsert("faq", document("1", "one"), document("2", "two!"), document("3", "three", title="new"))
    assert list(done.unchanged_document_ids) == ["1"]
    assert rag.embedder.passages == ["two!", "new\nthree"]


async def test_a_new_expiry_is_a_change(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one", expires_at_ms=rag.clocks.wall_ms + 5))
    done = await acme.upsert("faq", document("1", "one"))
    rag.clocks.wall_ms += 10
    assert (done.documents, len((await acme.retrieve("one")).passages)) == (1, 1)


async def test_an_expired_document_is_not_taken_for_an_unchanged_one(rag: RagUnderTest, acme: Caller) -> None:
    expires_at_ms = rag.clocks.wall_ms + 5
    await acme.upsert("faq", document("1", "one", expires_at_ms=expires_at_ms))
    rag.clocks.wall_ms += 10
    again = await acme.upsert("faq", document("1", "one", expires_at_ms=expires_at_ms))
    assert [refused.document_id for refused in again.refused] == ["1"]


async def test_other_limits_of_passages_make_a_document_new(tmp_path: Path) -> None:
    for chars in (480, 240):
        async with RagUnderTest(tmp_path / "index", passage_chars=chars) as rag:
            done = await rag.caller().upsert("faq", document("1", "word " * 80))
            assert done.documents == 1


async def test_another_embedder_makes_a_document_new(tmp_path: Path) -> None:
    for tag in ("one", "two"):
        async with RagUnderTest(tmp_path / "index", embedder=HashingEmbedder(tag=tag)) as rag:
            assert (await rag.caller().upsert("faq", document("1", "word"))).documents == 1


async def test_documents_are_listed_a_page_at_a_time(acme: Caller) -> None:
    names = [f"doc-{number}" * (1 + number % 2) for number in range(9)]
    await acme.upsert("faq", *[document(name, "text") for name in names])
    await acme.upsert("other", document("x", "text"))
    listed: list[str] = []
    while True:
        page = await acme.documents("faq", after=listed[-1] if listed else "", limit=4)
        listed += [one.document_id for one in page.documents]
        if len(page.documents) < 4:
            break
    assert sorted(listed) == sorted(names)


async def test_a_list_goes_on_after_a_document_that_is_gone(acme: Caller) -> None:
    await acme.upsert("faq", document("a", "text"), document("b", "text"), document("c", "text"))
    await acme.delete("faq", "b")
    assert [one.document_id for one in (await acme.documents("faq", after="b")).documents] == ["c"]


async def test_a_list_of_an_unknown_collection_names_it(rag: RagUnderTest, acme: Caller) -> None:
    await rag.caller("other").upsert("faq", document("1", "text"))
    with pytest.raises(MeshError) as caught:
        await acme.documents("faq")
    assert caught.value.metadata == {"collection": "faq"}


async def test_a_tenant_keeps_so_many_passages(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", *[document(str(n), "text") for n in range(20)])
    with pytest.raises(MeshError) as caught:
        await acme.upsert("other", document("more", "text"))
    assert (caught.value.reason_name, caught.value.quotas[0][0]) == ("QUOTA_EXHAUSTED", "passages")
    assert (await acme.upsert("faq", document("3", "replaced"))).documents == 1
    assert (await rag.caller("other").upsert("faq", document("1", "text"))).documents == 1


async def test_a_snapshot_brings_back_what_was(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "red cat", title="Pets"), document("2", "blue dog"))
    before = await acme.retrieve("red cat", top_k=4)
    made = await acme.snapshot("monday")
    await acme.upsert("faq", document("1", "green bird"), document("3", "new"))
    await acme.upsert("later", document("x", "stays"))
    (restored,) = await acme.restore("monday")
    after = await acme.retrieve("red cat", "faq", top_k=4)
    assert [(p.ref.document_id, p.text, p.ref.score) for p in after.passages] == [
        (p.ref.document_id, p.text, p.ref.score) for p in before.passages
    ]
    assert restored.index_version > made.collections[0].index_version
    assert [info.collection for info in await acme.collections()] == ["faq", "later"]


async def test_a_snapshot_says_what_it_holds(acme: Caller) -> None:
    await acme.upsert("a", document("1", "one"))
    await acme.upsert("b", document("1", "one"), document("2", "two"))
    await acme.snapshot("all")
    await acme.snapshot("some", "b")
    listed = await acme.snapshots()
    assert [(s.snapshot, [(c.collection, c.documents, c.index_version) for c in s.collections]) for s in listed] == [
        ("all", [("a", 1, 1), ("b", 2, 2)]),
        ("some", [("b", 2, 2)]),
    ]
    assert all(s.size_bytes > 100 and s.created_at_ms == 1_000_000 for s in listed)


async def test_a_restored_document_is_unchanged(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.snapshot("s")
    await acme.delete("faq", whole=True)
    await acme.restore("s")
    assert list((await acme.upsert("faq", document("1", "one"))).unchanged_document_ids) == ["1"]


async def test_a_collection_that_was_empty_is_empty_again(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.delete("faq", "1")
    await acme.snapshot("s")
    await acme.upsert("faq", document("2", "two"))
    await acme.restore("s")
    assert [(info.collection, info.documents) for info in await acme.collections()] == [("faq", 0)]


async def test_what_has_expired_is_not_restored(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one", expires_at_ms=rag.clocks.wall_ms + 5), document("2", "two"))
    await acme.snapshot("s")
    rag.clocks.wall_ms += 10
    await acme.restore("s")
    assert [one.document_id for one in (await acme.documents("faq")).documents] == ["2"]


async def test_a_snapshot_is_the_tenants_alone(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "secret"))
    await acme.snapshot("s")
    other = rag.caller("other")
    assert await other.snapshots() == []
    assert not await other.delete_snapshot("s")
    with pytest.raises(MeshError) as caught:
        await other.restore("s")
    assert caught.value.reason_name == "COLLECTION_UNKNOWN"


async def test_a_copied_snapshot_of_another_tenant_is_refused(rag: RagUnderTest, acme: Caller, tmp_path: Path) -> None:
    await acme.upsert("faq", document("1", "secret"))
    await acme.snapshot("s")
    other = rag.caller("other")
    await other.upsert("mine", document("1", "own"))
    await other.snapshot("t")
    folders = list((tmp_path / "index-snapshots").iterdir())
    (stolen,) = [path for folder in folders for path in folder.glob("s.snapshot")]
    (own,) = [path for folder in folders for path in folder.glob("t.snapshot")]
    own.write_bytes(stolen.read_bytes())
    with pytest.raises(MeshError) as caught:
        await other.restore("t")
    assert "tenant" in caught.value.message
    assert [info.collection for info in await other.collections()] == ["mine"]


async def test_a_damaged_snapshot_changes_nothing(acme: Caller, tmp_path: Path) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.snapshot("s")
    await acme.upsert("faq", document("1", "two"))
    (path,) = (tmp_path / "index-snapshots").rglob("*.snapshot")
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:40], b"", bytes([whole[0] ^ 1]) + whole[1:], whole[:60] + b"x" + whole[61:]):
        path.write_bytes(damaged)
        with pytest.raises(MeshError) as caught:
            await acme.restore("s")
        assert caught.value.reason_name == "STORE_UNAVAILABLE"
    assert [p.text for p in (await acme.retrieve("two")).passages] == ["two"]


async def test_a_snapshot_of_another_embedder_is_refused(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", embedder=HashingEmbedder(tag="one")) as rag:
        await rag.caller().upsert("faq", document("1", "one"))
        await rag.caller().snapshot("s")
    async with RagUnderTest(tmp_path / "index", embedder=HashingEmbedder(tag="two")) as rag:
        with pytest.raises(MeshError) as caught:
            await rag.caller().restore("s")
        assert caught.value.reason_name == "UNSUPPORTED"


async def test_a_tenant_keeps_so_many_snapshots(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.snapshot("a")
    await acme.snapshot("b")
    await acme.snapshot("b")
    with pytest.raises(MeshError) as caught:
        await acme.snapshot("c")
    assert caught.value.reason_name == "QUOTA_EXHAUSTED"
    assert await acme.delete_snapshot("a")
    assert (await acme.snapshot("c")).snapshot == "c"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.b", "a\0", "é", "x" * 65])
async def test_a_snapshot_name_is_no_path(acme: Caller, name: str) -> None:
    for call in (acme.snapshot(name), acme.restore(name), acme.delete_snapshot(name)):
        with pytest.raises(MeshError) as caught:
            await call
        assert caught.value.fields[0][0] == "snapshot"


async def test_a_snapshot_is_of_one_instant(acme: Caller) -> None:
    await acme.upsert("a", document("1", "0"))
    await acme.upsert("b", document("1", "0"))
    is_over = False

    async def write() -> None:
        number = 0
        while not is_over:
            number += 1
            await acme.upsert("a", document("1", str(number)))
            await acme.upsert("b", document("1", str(number)))

    writer = asyncio.ensure_future(write())
    try:
        for _ in range(10):
            versions = {one.collection: one.index_version for one in (await acme.snapshot("s")).collections}
            assert abs(versions["a"] - versions["b"]) == 1
    finally:
        is_over = True
        await writer
    await acme.restore("s")
    texts = [int(p.text) for p in (await acme.retrieve("x")).passages]
    assert texts[0] - texts[1] in (-1, 0, 1)


async def test_refs_of_a_restored_collection_are_those_of_its_documents(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "red " * 200))
    before = refs(await acme.retrieve("red", top_k=8))
    await acme.snapshot("s")
    await acme.delete("faq", whole=True)
    await acme.restore("s")
    assert refs(await acme.retrieve("red", top_k=8)) == before


async def test_a_snapshot_is_not_put_back_where_there_is_no_room(acme: Caller) -> None:
    await acme.upsert("faq", *[document(str(n), "text") for n in range(12)])
    await acme.snapshot("s")
    await acme.delete("faq", whole=True)
    await acme.upsert("other", *[document(str(n), "text") for n in range(12)])
    with pytest.raises(MeshError) as caught:
        await acme.restore("s")
    assert caught.value.reason_name == "QUOTA_EXHAUSTED"
    await acme.delete("other", "1", "2", "3", "4")
    assert [info.documents for info in await acme.restore("s")] == [12]
    assert [info.documents for info in await acme.restore("s")] == [12]


async def test_what_a_crash_left_of_a_snapshot_is_in_nobody_s_way(acme: Caller, tmp_path: Path) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.snapshot("s")
    (path,) = (tmp_path / "index-snapshots").rglob("*.snapshot")
    whole = path.read_bytes()
    path.with_suffix(".partial").write_bytes(whole[:50] * 1_000)
    assert [one.snapshot for one in await acme.snapshots()] == ["s"]
    await acme.snapshot("s")
    assert path.read_bytes() == whole
    assert list(path.parent.iterdir()) == [path]


async def test_a_disk_that_takes_no_snapshot_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with RagUnderTest(tmp_path / "index", snapshots_directory=tmp_path / "file") as rag:
        await rag.caller().upsert("faq", document("1", "one"))
        with pytest.raises(MeshError) as caught:
            await rag.caller().snapshot("s")
        assert caught.value.reason_name == "STORE_UNAVAILABLE"
        assert await rag.caller().snapshots() == []
