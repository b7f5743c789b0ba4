"""The reranker over real HTTP, and what happens when it is late, wrong or busy."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from helpers.rag import RagUnderTest, document
from ssop_chassis.settings import SettingsError
from ssop_rag.reranking import HttpReranker, RerankError

Reply = Callable[[dict[str, Any]], tuple[int, bytes]]


class RerankServer:
    """Answers as `reply` says; while `gate` is shut, not at all."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, Any], str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reply: Reply = by_length
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((body, self.headers.get("Authorization", "")))
                outer.gate.wait(10)
                status, data = outer.reply(body)
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/rerank"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def by_length(body: dict[str, Any]) -> tuple[int, bytes]:
    results = [{"index": i, "relevance_score": len(text)} for i, text in enumerate(body["documents"])]
    return 200, json.dumps({"results": results[::-1]}).encode()


@pytest.fixture
def server() -> Iterator[RerankServer]:
    made = RerankServer()
    yield made
    made.close()


async def _ask(rag: RagUnderTest, top_k: int = 1) -> Any:
    caller = rag.caller()
    await caller.upsert("faq", document("1", "cat"), document("2", "cat cat dog and more"), document("3", "cat dog"))
    return await caller.retrieve("cat", top_k=top_k)


async def test_the_reranker_decides_the_order(tmp_path: Path, server: RerankServer) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    async with RagUnderTest(tmp_path / "i", rerank_url=server.url, rerank_model="m", rerank_key_file=key) as rag:
        answer = await _ask(rag, 2)
        assert [p.ref.document_id for p in answer.passages] == ["2", "3"]
        assert (answer.is_rerank_skipped, answer.passages[0].ref.score) == (False, 20.0)
        ((body, authorization),) = server.requests
        assert (body["model"], body["query"], len(body["documents"]), body["top_n"]) == ("m", "cat", 3, 3)
        assert authorization == "Bearer secret"
        (info,) = await rag.caller().collections()
        assert answer.index_version == f"faq:{info.index_stamp}"


@pytest.mark.parametrize(
    "reply",
    [
        (500, b"{}"),
        (302, b""),
        (200, b"no json"),
        (200, b"[]"),
        (200, b'{"results": [{"index": 0, "relevance_score": 1}]}'),
        (200, b'{"results": [{"index": 0}]}'),
        (200, json.dumps({"results": [{"index": i, "relevance_score": float("nan")} for i in range(3)]}).encode()),
        (200, b" " * 2_000_000),
    ],
)
async def test_a_wrong_answer_leaves_the_order_and_is_flagged(
    tmp_path: Path, server: RerankServer, reply: tuple[int, bytes]
) -> None:
    server.reply = lambda _: reply
    async with RagUnderTest(tmp_path, rerank_url=server.url, rerank_timeout_ms=5_000) as rag:
        answer = await _ask(rag)
        assert answer.is_rerank_skipped
        assert answer.index_version.endswith(";rerank-skipped")
        assert len(answer.passages) == 1


async def test_a_late_reranker_is_not_waited_for_and_bounded(tmp_path: Path, server: RerankServer) -> None:
    server.gate.clear()
    async with RagUnderTest(tmp_path, rerank_url=server.url, rerank_timeout_ms=200, rerank_concurrent=1) as rag:
        await _ask(rag)
        answers = await asyncio.gather(*(rag.caller().retrieve("cat", top_k=1) for _ in range(5)))
        assert all(answer.is_rerank_skipped for answer in answers)
        assert len(server.requests) <= 3
        server.gate.set()


async def test_a_reranker_that_is_away_is_flagged(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path, rerank_url="http://127.0.0.1:1/rerank") as rag:
        assert (await _ask(rag)).is_rerank_skipped


async def test_without_passages_it_is_not_asked(tmp_path: Path, server: RerankServer) -> None:
    async with RagUnderTest(tmp_path, rerank_url=server.url) as rag:
        answer = await rag.caller().retrieve("cat")
        assert (answer.is_rerank_skipped, server.requests) == (False, [])


def test_another_scheme_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="rerank_url"):
        HttpReranker("file:///etc/passwd", "m", "")


def test_the_error_says_no_more_than_why(server: RerankServer) -> None:
    server.reply = lambda _: (200, b"secret text")
    with pytest.raises(RerankError, match=r"^the reranker gave no scores: malformed$"):
        HttpReranker(server.url, "m", "").score("q", ["a"], 5)
