"""What callers say stays out of logs, metrics, errors and the names of keys: a mesh at debug level, a secret word."""

import json
import signal
from collections.abc import Iterator
from typing import Any, Final
from urllib.request import urlopen

import grpc
import pytest
import redis

from helpers.live_mesh import LiveMesh, run_mesh, wait_until
from ssop.v1 import content_pb2, rag_pb2, router_pb2
from ssop_cli.embedded import free_port

CANARY: Final = "Zx9QkCanary7Vw"
"""One word, so that no tokenizer, wrapping or JSON escape can hide it; looked for in any case."""
SERVICES: Final = ("router", "inference", "cache", "rag")
PLAIN: Final[dict[str, Any]] = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}}
SCHEMAS: Final[dict[str, Any]] = {
    "served": {**PLAIN, "description": CANARY},
    "written by the model": {"const": CANARY},
    "refused": {**PLAIN, "description": CANARY, "if": {"const": CANARY}},
    "not JSON": f'{{"description": "{CANARY}", ',
    "no constraint": {"type": "integer", "minimum": -(10**300), "description": CANARY},
    "broken by the model": {"type": "string", "minLength": 2_000, "format": "date", "description": CANARY},
}


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in SERVICES}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[LiveMesh]:
    """A mesh at debug level that has seen the canary wherever a caller can put it."""
    listen = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    changes = {"mesh": {"log_level": "debug", "metrics_listen": listen}}
    with run_mesh(tmp_path_factory.mktemp("canary"), changes) as mesh:
        document = rag_pb2.IndexDocument(
            document_id=f"id-{CANARY}", title=CANARY, text=f"The word is {CANARY}.", attributes={CANARY: CANARY}
        )
        upsert = rag_pb2.UpsertDocumentsRequest(collection="c", documents=[document])
        mesh.call("rag", "RagService/UpsertDocuments", "local", upsert, rag_pb2.UpsertDocumentsResponse)
        yield mesh


def ask(text: str, schema: Any = None, **fields: Any) -> router_pb2.GenerateRequest:
    request = router_pb2.GenerateRequest(debug=True, timeout_ms=20_000, **fields)
    request.prompt.sampling.max_output_tokens = 24
    request.prompt.messages.add(role=content_pb2.ROLE_USER).parts.add(text=text)
    if schema is not None:
        request.prompt.output_schema.json_schema = schema if isinstance(schema, str) else json.dumps(schema)
    return request


def open_channel(mesh: LiveMesh) -> Any:
    return grpc.insecure_channel(mesh.target)


def talk(mesh: LiveMesh) -> list[grpc.RpcError]:
    """Put the canary everywhere, in calls that succeed and in calls that fail; their errors."""
    key = ("authorization", f"Bearer {mesh.key}")
    texts = [f"Say {CANARY}", f"{CANARY} " * 3_000, f"<|im_start|>{CANARY}\0", CANARY * 100_000]
    requests = [ask(text) for text in texts]
    requests += [ask(f"Say {CANARY}", schema) for schema in SCHEMAS.values()]
    requests += [
        ask(CANARY, policy=CANARY),
        ask(CANARY, policy="cache_only"),
        ask(CANARY, request_id="bad id"),
        ask(CANARY, retrieval=router_pb2.RetrievalOptions(collections=["unknown"])),
        ask(CANARY, resume_window_ms=1_000),
    ]
    image = ask(CANARY)
    image.prompt.messages[0].parts.add(image=content_pb2.Media(mime_type="image/png", data=CANARY.encode()))
    tools = ask(CANARY)
    tools.prompt.tools.add(name="t", description=CANARY, parameters_schema=json.dumps({"description": CANARY}))
    stops = ask(CANARY)
    stops.prompt.sampling.stop.append(CANARY)
    payloads = [request.SerializeToString() for request in (*requests, image, tools, stops)]
    payloads += [b"\xff\xff" + CANARY.encode(), payloads[0][:-5]]
    errors: list[grpc.RpcError] = []
    with open_channel(mesh) as channel:
        generate = channel.unary_stream("/ssop.v1.RouterService/Generate")
        for metadata in [[key], [key, ("x-router-policy", CANARY.lower())]]:
            for payload in payloads:
                errors += failure(generate(payload, timeout=30, metadata=metadata))
        for secret in (CANARY, f"Bearer {CANARY}", f"Bearer ssop_{CANARY}_{CANARY}", f"Bearer {mesh.key}x"):
            errors += failure(generate(payloads[0], timeout=30, metadata=[("authorization", secret)]))
        check = channel.unary_stream("/ssop.v1.RouterService/CheckSchema")
        for schema in SCHEMAS.values():
            text = schema if isinstance(schema, str) else json.dumps(schema)
            request = router_pb2.CheckSchemaRequest(output_schema=content_pb2.OutputSchema(json_schema=text))
            errors += failure(check(request.SerializeToString(), timeout=30, metadata=[key]))
        errors += failure(open_session(channel, key))
        # The node dies with the canary in its hands.
        running = generate(ask(f"Write a long text about {CANARY}.").SerializeToString(), timeout=30, metadata=[key])
        next(running)
        pid = mesh.signal("inference", signal.SIGABRT)
        errors += failure(running)
    mesh.wait_restarted("inference", pid)
    return errors


def open_session(channel: Any, key: tuple[str, str]) -> Any:
    messages = [
        router_pb2.SessionRequest(request_id="s", begin=router_pb2.SessionBegin(request=ask(CANARY))),
        router_pb2.SessionRequest(request_id="s", piece=f"{CANARY} " * 20),
        router_pb2.SessionRequest(request_id="s", commit=router_pb2.SessionCommit()),
        router_pb2.SessionRequest(request_id="u", piece=CANARY),
    ]
    payloads = iter([*(message.SerializeToString() for message in messages), b"\xff" + CANARY.encode()])
    return channel.stream_stream("/ssop.v1.RouterService/Session")(payloads, timeout=30, metadata=[key])


def failure(call: Any) -> list[grpc.RpcError]:
    """The error of a call, if it has one."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        return [error]
    return []


@pytest.fixture(scope="module")
def errors(watched: LiveMesh) -> list[Any]:
    return talk(watched)


def holds(data: bytes | str) -> bool:
    text = data.decode(errors="replace") if isinstance(data, bytes) else data
    return CANARY.lower() in text.lower()


def test_errors_never_quote_what_was_sent(errors: list[Any]) -> None:
    assert len(errors) > 20
    for error in errors:
        assert not holds(error.details() or "")
        assert not any(holds(value) for _, value in error.trailing_metadata() or ())


def test_logs_never_quote_what_was_sent(watched: LiveMesh, errors: list[Any]) -> None:
    assert errors
    files = [path for path in watched.places.log("router").parent.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 10_000
    for path in files:
        for line in path.read_text(errors="replace").splitlines():
            assert not holds(line), (path.name, line[:300])
            assert watched.key not in line, path.name


def test_metrics_never_quote_what_was_sent(watched: LiveMesh, errors: list[Any], ports: dict[str, int]) -> None:
    assert errors
    wait_until(watched.is_ready, 60, "the mesh is ready")
    for port in ports.values():
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            text = page.read()
        assert b"# HELP" in text
        assert not holds(text)


@pytest.mark.parametrize("role", ["cache", "state"])
def test_names_of_keys_never_quote_what_was_sent(watched: LiveMesh, errors: list[Any], role: str) -> None:
    assert errors
    with redis.Redis(unix_socket_path=str(watched.places.socket(f"redis-{role}"))) as client:
        names = list(client.scan_iter())
    assert names
    assert not any(holds(name) for name in names)
