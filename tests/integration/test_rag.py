"""The RAG service as a process: a real model, a real store, real crashes."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.crossings import TENANTS, Tenant, run_tenants
from helpers.eventually import eventually
from helpers.rag import document, refs
from helpers.rag_process import RagProcess
from ssop_chassis.errors import MeshError

CORPUS = {
    "refund": "Customers may return goods within 30 days and get their money back to the card they paid with.",
    "shipping": "Parcels leave our warehouse every evening and arrive within two working days.",
    "battery": "The scooter's battery lasts forty kilometres and charges fully in four hours.",
    "退款": "顾客可以在三十天内退货，款项将退回原支付账户。",
    "天气": "明天北京有大雨，气温将下降到十度左右，请注意保暖。",
    "股价": "公司第三季度利润大增，股价周五上涨了百分之八。",
}
QUESTIONS = [
    ("How can I get my money back?", "refund", {"refund", "退款"}),
    ("When does my parcel arrive?", "shipping", {"shipping"}),
    ("How far can I ride on one charge?", "battery", {"battery"}),
    ("北京明天会下雨吗？", "天气", {"天气"}),
    ("为什么这家公司的股票涨了？", "股价", {"股价"}),
    ("怎么退货拿回钱？", "退款", {"refund", "退款"}),
]


@pytest.fixture(scope="module")
def rag(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RagProcess]:
    with RagProcess(tmp_path_factory.mktemp("rag")) as process:
        yield process


async def test_english_and_chinese_questions_find_their_passage(rag: RagProcess) -> None:
    caller = rag.caller("reader")
    await caller.upsert("notes", *[document(name, text) for name, text in CORPUS.items()])
    found = [(await caller.retrieve(question, top_k=1)).passages[0] for question, _, _ in QUESTIONS]
    wrong = [q for (q, _, right), p in zip(QUESTIONS, found, strict=True) if p.ref.document_id not in right]
    assert wrong == []
    assert all(p.text == CORPUS[p.ref.document_id] for p in found)


async def test_a_prefetch_is_used_and_changes_nothing(rag: RagProcess) -> None:
    caller = rag.caller("prefetcher")
    await caller.upsert("notes", *[document(name, text) for name, text in CORPUS.items()])
    hits = 0
    for number, (question, _, _) in enumerate(QUESTIONS):
        for prefix in (question, question[: len(question) // 2]):
            request_id = f"{number}-{len(prefix)}"
            started = await caller.prefetch(request_id, prefix)
            fetched = await caller.retrieve(question, request_id=request_id, top_k=3)
            assert refs(fetched) == refs(await caller.retrieve(question, top_k=3))
            hits += fetched.is_prefetch_hit
            assert started or not fetched.is_prefetch_hit
            # A busy service sheds prefetches; one of the whole question that it began is of use.
            assert fetched.is_prefetch_hit or not (started and prefix == question)
    assert hits


async def test_a_document_stops_being_found_when_it_expires(rag: RagProcess) -> None:
    caller = rag.caller("expirer")
    for lasts_ms in (1_500, 6_000, 24_000):
        expires_at_ms = time.time_ns() // 1_000_000 + lasts_ms
        await caller.upsert("notes", document("brief", "A short-lived note.", expires_at_ms=expires_at_ms))
        before = len((await caller.retrieve("short-lived note")).passages)
        if before:
            break
    # A machine that has much to do may take longer to look than the shorter ones last.
    assert before == 1
    while time.time_ns() // 1_000_000 < expires_at_ms:
        await asyncio.sleep(0.05)
    assert len((await caller.retrieve("short-lived note")).passages) == 0


async def test_a_call_without_a_principal_is_refused(rag: RagProcess) -> None:
    caller = rag.caller("reader")
    caller._metadata = None
    with pytest.raises(MeshError) as caught:
        await caller.collections()
    assert caught.value.reason_name == "PRINCIPAL_INVALID"


def test_a_second_process_on_the_folder_says_why_it_ends(rag: RagProcess) -> None:
    folder = Path(rag.address.removeprefix("unix:")).parent
    second = RagProcess(folder, "second")
    second.launch()
    assert second.wait() == 1
    assert "in use by another process" in second.log


async def test_tenants_do_not_meet_over_grpc(tmp_path: Path) -> None:
    with RagProcess(tmp_path) as process:
        tenants = [Tenant(name, process.caller(name), random.Random(f"9 {name}")) for name in TENANTS]
        await run_tenants(tenants, 400)
    assert sum(tenant.crossings for tenant in tenants) == 0
    assert all(tenant.answers > 40 for tenant in tenants)


def _text(revision: int) -> str:
    return "\n\n".join(f"Paragraph {n} of revision {revision} tells a story at some length. " * 6 for n in range(2))


async def test_kill_in_the_middle_of_upserts_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with RagProcess(tmp_path) as process:
        passages = (await process.caller("sizer").upsert("one", document("x", _text(0)))).passages
        acknowledged: dict[str, int] = {}
        versions: list[int] = []

        async def write(lane: int) -> None:
            caller = process.caller("writer")
            for revision in range(1000):
                name = f"{lane}-{revision // 2}"
                try:
                    done = await caller.upsert("notes", document(name, _text(revision)))
                except MeshError:
                    return
                acknowledged[name] = revision
                versions.append(done.index_version)

        writers = [asyncio.ensure_future(write(lane)) for lane in range(3)]
        await eventually(lambda: len(acknowledged) >= 12, 60)
        process.kill()
        await asyncio.gather(*writers)
        process.start()
        caller = process.caller("writer")
        (info,) = await caller.collections()
        assert passages > 1
        assert info.documents >= len(acknowledged)
        assert info.passages == passages * info.documents
        assert info.index_version >= max(versions)
        answer = await caller.retrieve("a story at some length", top_k=32)
        for passage in answer.passages:
            if (revision := acknowledged.get(passage.ref.document_id)) is not None:
                assert any(f"of revision {later} " in passage.text for later in (revision, revision + 1))
        assert (await caller.upsert("notes", document("new", "text"))).index_version > info.index_version


async def test_a_restart_keeps_documents_and_versions(tmp_path: Path) -> None:
    with RagProcess(tmp_path) as process:
        caller = process.caller("keeper")
        await caller.upsert("notes", *[document(name, text) for name, text in CORPUS.items()])
        before = await caller.collections()
    with RagProcess(tmp_path) as process:
        caller = process.caller("keeper")
        assert await caller.collections() == before
        assert refs(await caller.retrieve("北京明天会下雨吗？", top_k=1)) == [("notes", "天气", 0)]
