"""Random requests for the HTTP edge: heads and bodies that are good, nearly good, and none at all. Seeded."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from helpers.answers import PERSON, PERSON_SCHEMA, delivery, document_chunks
from helpers.scripted_router import ScriptedRouter
from ssop.v1 import rag_pb2
from ssop.v1 import router_pb2 as pb

KEY = "ssop_test_key"
SSOP, JSON = "application/x-ssop+json", "application/json"
USER = [{"role": "user", "content": "Who?"}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": PERSON_SCHEMA}}
GOOD: tuple[tuple[str, str, str, Any], ...] = (
    ("POST", "/v1/generate", SSOP, {"prompt": "Who?", "output_schema": PERSON_SCHEMA}),
    ("POST", "/v1/generate", JSON, {"prompt": "Who?", "streaming": False}),
    ("POST", "/v1/generate", SSOP, {"messages": USER, "output_schema": {"type": "object"}}),
    ("POST", "/v1/chat/completions", JSON, {"model": "auto", "messages": USER, "stream": True}),
    ("POST", "/v1/chat/completions", JSON, {"model": "small", "messages": USER, "response_format": FORMAT}),
    ("POST", "/v1/explain", SSOP, {"prompt": "Who?", "output_schema": PERSON_SCHEMA}),
    ("POST", "/v1/schema/check", SSOP, {"output_schema": PERSON_SCHEMA, "stream_buffer_size": 256}),
    ("POST", "/v1/embeddings", JSON, {"model": "e5", "input": ["a", "b"]}),
    ("POST", "/v1/responses", JSON, {"model": "e5", "input": "a"}),
    ("GET", "/v1/models", "", None),
    ("GET", "/v1/models/x/y", "", None),
    ("GET", "/v1/mesh/status", "", None),
    ("GET", "/readyz", "", None),
    ("GET", "/metrics", "", None),
    ("GET", "/openapi.json", "", None),
    ("GET", "/console", "", None),
)
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "BREW")
TYPES = (SSOP, JSON, "text/plain", "multipart/form-data; boundary=x", "", "a", "*/*")
ACCEPTS = (
    "*/*", "text/event-stream", "application/x-ndjson", "application/json", "image/png", ";;;q=,", "a/b;q=9",
    "text/*;q=0.1",
)  # fmt: skip
SUFFIXES = ("?a=b&%zz", "/", "/%2e%2e/%00", "#x")
KEYS = (
    "prompt", "messages", "output_schema", "model", "stream", "streaming", "temperature", "top_p", "seed", "stop",
    "tools", "tool_choice", "n", "logprobs", "response_format", "stream_options", "max_tokens", "timeout_ms",
    "request_id", "ssop", "collections", "policy", "max_degraded_level", "rag_prefetch_ratio", "stream_buffer_size",
    "input", "\u2028", "__proto__",
)  # fmt: skip


@dataclass
class Outcome:
    """What became of the requests. `bad` are (status, request) pairs that must not be."""

    statuses: Counter[int] = field(default_factory=Counter)
    bad: list[tuple[int, bytes, bytes]] = field(default_factory=list)


async def answer_as_asked(request: Any, context: Any) -> AsyncIterator[bytes]:
    """Text where there is no schema, else a document."""
    has_schema = request.prompt.HasField("output_schema")
    for chunk in delivery(document_chunks(PERSON) if has_schema else document_chunks("Hello.", schema=None)):
        yield chunk


def answer_all(router: ScriptedRouter) -> None:
    """Let a scripted router answer whatever arrives."""
    router.script = answer_as_asked
    router.unary |= {
        "ListModels": pb.ListModelsResponse(),
        "CheckSchema": pb.CheckSchemaResponse(),
        "ExplainDecision": pb.ExplainDecisionResponse(),
        "GetMeshStatus": pb.GetMeshStatusResponse(),
        "Embed": rag_pb2.EmbedResponse(embedder="e5", vectors=[bytes(8)]),
    }


def any_json(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value, strange ones too."""
    kind = rng.randrange(9 if depth < 4 else 7)
    texts = ("", "x", "lite", "é" * 50, "\u0000", "\ud83d\ude00", "data:image/png;base64,AAAA", "{" * 30, "user")
    numbers = (0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 1.5, -0.0, 1e308, 7)
    if kind < 2:
        return rng.choice(texts)
    if kind < 4:
        return rng.choice(numbers)
    if kind < 6:
        return rng.choice((None, True, False))
    if kind == 6:
        return rng.choice(([], {}, {"type": "function"}, {"role": "user"}, {"$ref": "http://x"}))
    if kind == 7:
        return [any_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): any_json(rng, depth + 1) for _ in range(rng.randrange(4))}


def any_body(rng: random.Random, good: Any) -> bytes:
    """A body: good, nearly good, any JSON, or bytes."""
    kind = rng.randrange(12)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    if kind == 1:
        shapes = (
            b"[" * 5_000,
            b'{"a":' * 5_000,
            b'{"prompt": "\\ud800"}',
            b"{" + b'"prompt": "x",' * 300,
            b"9" * 6_000,
        )
        return rng.choice(shapes)
    if kind == 2:
        return json.dumps(any_json(rng)).encode()
    value = json.loads(json.dumps(good)) or {}
    for _ in range(rng.choice((0, 0, 0, 1, 2, 3))):
        value[rng.choice(KEYS)] = any_json(rng)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if kind == 3:
        at = rng.randrange(len(text))
        text = text[:at] + rng.randbytes(1) + text[at + rng.randrange(3) :]
    return text


def any_heads(rng: random.Random, kind: str) -> list[bytes]:
    """Lines of a head, but for the length."""
    heads = [b"host: e", b"connection: close"]
    if rng.random() < 0.95:
        heads.append(f"authorization: Bearer {KEY}".encode())
    heads.append(f"content-type: {kind if rng.random() < 0.9 else rng.choice(TYPES)}".encode())
    if rng.random() < 0.3:
        heads.append(f"accept: {rng.choice(ACCEPTS)}".encode())
    strange = (
        b"authorization: Basic eA==", b"x-api-key: other", b"x-request-id: a b", b"x-request-id: \xff\xfe",
        b"x-router-policy: \xe9", b"x-router-policy: lite", b"x-request-timeout-ms: 1e9", b"x-request-timeout-ms: 50",
        b"traceparent: 00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00", b"content-encoding: gzip",
        b"expect: 100-continue", b"origin: https://evil.example", b"range: bytes=0-1", b"upgrade: websocket",
        b"transfer-encoding: chunked", b"x: " + b"y" * rng.randrange(20_000), b"accept: " + b"a/b," * 2_000,
        b"te: trailers", b"cookie: " + rng.randbytes(9).hex().encode(),
    )  # fmt: skip
    return heads + rng.sample(strange, rng.choice((0, 0, 0, 0, 1, 2)))


def any_request(rng: random.Random) -> bytes:
    """The bytes of a request. The edge closes the connection after its response."""
    method, path, kind, good = rng.choice(GOOD)
    if rng.random() < 0.1:
        method = rng.choice(METHODS)
    if rng.random() < 0.1:
        path += rng.choice(SUFFIXES)
    if rng.random() < 0.03:
        path = "/" + "".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(60)))
    body = any_body(rng, good) if rng.random() < 0.95 and method != "GET" else b""
    heads = any_heads(rng, kind)
    size = len(body) + (rng.choice((-1, 1, 5)) if rng.random() < 0.02 else 0)
    heads.append(f"content-length: {max(0, size)}".encode())
    version = b" HTTP/1.1" if rng.random() < 0.97 else rng.choice((b" HTTP/1.0", b"", b" HTTP/3"))
    return f"{method} {path}".encode() + version + b"\r\n" + b"\r\n".join(heads) + b"\r\n\r\n" + body


async def send_request(port: int, data: bytes, timeout_s: float) -> bytes:
    """Send the bytes, read until the edge closes the connection or the time is over, and leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(timeout_s):
            return await reader.read()
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.close()


async def run_campaign(port: int, count: int, *, seed: int, at_once: int = 8, timeout_s: float = 2) -> Outcome:
    """Send so many requests; a 500, or an error that is no JSON, is bad."""
    rng = random.Random(seed)
    requests = iter([any_request(rng) for _ in range(count)])
    outcome = Outcome()

    async def work() -> None:
        for data in requests:
            answer = await send_request(port, data, timeout_s)
            head, _, body = answer.partition(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/1.1 ") else 0
            if status == 100:
                head, _, body = body.partition(b"\r\n\r\n")
                status = int(head.split(b" ", 2)[1]) if head else 0
            outcome.statuses[status] += 1
            if status in (500, 502) or (status >= 400 and b"json" in head and not _is_error(body)):
                outcome.bad.append((status, data, answer))

    await asyncio.gather(*(work() for _ in range(at_once)))
    return outcome


def _is_error(body: bytes) -> bool:
    # HEAD has no body.
    return not body or "error" in json.loads(body) or "status" in json.loads(body)
