"""Hostile requests to every method of a live mesh: each ends with OK or a typed error, and nothing is left behind.

SSOP_TEST_GARBAGE_SEED gives other requests than those of every run.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from helpers.garbage import hostile_requests
from helpers.live_mesh import LiveMesh, wait_until
from ssop.v1 import cache_pb2, content_pb2, inference_pb2, mesh_pb2, rag_pb2, router_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_sdk import SsopClient

REQUESTS: Final = 40
TIMEOUT_S: Final = 20
SPARE: Final = 24
"""Descriptors that a service may have more than before: connections to Redis, kept open."""
SEED: Final = int(os.environ.get("SSOP_TEST_GARBAGE_SEED") or 1)
SCHEMA: Final = '{"type":"object","properties":{"mood":{"enum":["good","bad"]}},"required":["mood"]}'
KEY: Final = b"k" * 32
SERVICES: Final = {"router": router_pb2, "inference": inference_pb2, "cache": cache_pb2, "rag": rag_pb2}


def prompt(schema: str = "") -> content_pb2.Prompt:
    made = content_pb2.Prompt(sampling=content_pb2.Sampling(max_output_tokens=4))
    made.messages.add(role=content_pb2.ROLE_USER).parts.add(text="Hi")
    if schema:
        made.output_schema.json_schema = schema
    return made


REQUEST: Final = router_pb2.GenerateRequest(prompt=prompt(), timeout_ms=5_000, receipts=[mesh_pb2.Receipt()])
BASES: Final[dict[str, Message]] = {
    "Generate": REQUEST,
    "Session": router_pb2.SessionRequest(
        request_id="s", begin=router_pb2.SessionBegin(request=REQUEST, is_complete=True)
    ),
    "Resume": router_pb2.ResumeRequest(request_id="r"),
    "CheckSchema": router_pb2.CheckSchemaRequest(output_schema=content_pb2.OutputSchema(json_schema=SCHEMA)),
    "ExplainDecision": router_pb2.ExplainDecisionRequest(request=REQUEST),
    "CountTokens": inference_pb2.CountTokensRequest(prompt=prompt(SCHEMA)),
    "CheckConstraint": inference_pb2.CheckConstraintRequest(output_schema=content_pb2.OutputSchema(json_schema=SCHEMA)),
    "Admit": cache_pb2.AdmitRequest(request_id="a", cache_key=KEY, reserve_tokens=9, lease_ms=50, max_age_ms=9),
    "Settle": cache_pb2.SettleRequest(request_id="a", usage=mesh_pb2.Usage(input_tokens=4, output_tokens=4)),
    "Lookup": cache_pb2.LookupRequest(cache_key=KEY),
    "Follow": cache_pb2.FollowRequest(cache_key=KEY),
    "Append": cache_pb2.AppendRequest(cache_key=KEY, fencing_token=1, chunk=b"x", lease_ms=50),
    "Commit": cache_pb2.CommitRequest(cache_key=KEY, fencing_token=1, is_complete=True, ttl_ms=9, model="m"),
    "UpsertDocuments": rag_pb2.UpsertDocumentsRequest(
        collection="c", documents=[rag_pb2.IndexDocument(document_id="d", text="Some text.", attributes={"a": "b"})]
    ),
    "DeleteDocuments": rag_pb2.DeleteDocumentsRequest(collection="c", document_ids=["d"]),
    "Prefetch": rag_pb2.PrefetchRequest(request_id="p", collections=["c"], query_prefix="some words", top_k=3),
    "CancelPrefetch": rag_pb2.CancelPrefetchRequest(request_id="p"),
    "Retrieve": rag_pb2.RetrieveRequest(request_id="p", collections=["c"], query="some words", top_k=3),
}
INFERENCE: Final = inference_pb2.InferenceServiceGenerateRequest(request_id="g", prompt=prompt(SCHEMA), priority=1)
METHODS: Final = [
    (name, method)
    for name, module in SERVICES.items()
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@pytest.fixture
def metadata(mesh: LiveMesh) -> dict[str, list[tuple[str, str | bytes]]]:
    """By service: a caller with every right, of a tenant of its own behind the router."""
    inner = mesh.sign("garbage", "lite", "full", "rag", "ssop")
    return {**dict.fromkeys(SERVICES, inner), "router": [("authorization", f"Bearer {mesh.key}")]}


def send(channel: Any, path: str, method: Any, request: bytes, metadata: Any) -> grpc.RpcError | None:
    """Run a call to its end; its error, or None."""
    if method.client_streaming:
        call = channel.stream_stream(path)(iter([request]), timeout=TIMEOUT_S, metadata=metadata)
    else:
        # One response is a stream of one.
        call = channel.unary_stream(path)(request, timeout=TIMEOUT_S, metadata=metadata)
    try:
        for _ in call:
            if method.name == "WatchStatus":
                # Never ends by itself.
                call.cancel()
                break
    except grpc.RpcError as error:
        return error
    return None


def is_own_deadline(error: Any) -> bool:
    """gRPC of this process gave up: garbage that is a good request may run longer than the call has time."""
    return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not error.trailing_metadata()


def reason_of(error: Any) -> str:
    """The reason of a typed error; empty where it has none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            info = error_details_pb2.ErrorInfo()
            details = status_pb2.Status.FromString(value).details
            if any(detail.Unpack(info) for detail in details) and info.domain == "ssop":
                return str(info.reason)
    return ""


@pytest.fixture(scope="module", autouse=True)
def _trace(mesh: LiveMesh) -> Iterator[None]:
    """After all of it: nothing runs, nothing failed in a log, no file descriptor or process was lost."""
    wait_until(mesh.is_ready, 60, "the mesh is ready")
    pids = {name: mesh.child(name).pid for name in SERVICES}
    logs = {name: len(mesh.log(name)) for name in SERVICES}
    before = count_descriptors(pids)
    yield
    with SsopClient(mesh.key, mesh.target, timeout_s=60) as client:
        wait_until(lambda: client.mesh_status().in_flight == 0, 60, "no request runs")
    assert {name: mesh.child(name).pid for name in SERVICES} == pids
    for name, size in logs.items():
        faults = [line for line in mesh.log(name)[size:].splitlines() if is_fault(line)]
        assert not faults, faults[:3]
    wait_until(
        lambda: all(count <= before[name] + SPARE for name, count in count_descriptors(pids).items()),
        30,
        "descriptors are closed",
    )


def is_fault(line: str) -> bool:
    return "Traceback" in line or '"level":"critical"' in line or '"message":"a handler failed"' in line


def count_descriptors(pids: Mapping[str, int]) -> dict[str, int]:
    return {name: len(list(Path(f"/proc/{pid}/fd").iterdir())) for name, pid in pids.items()}


@pytest.mark.parametrize(("service", "method"), METHODS, ids=[f"{name}-{method.name}" for name, method in METHODS])
def test_garbage_ends_typed(service: str, method: Any, mesh: LiveMesh, metadata: dict[str, Any]) -> None:
    base = INFERENCE if (service, method.name) == ("inference", "Generate") else BASES.get(method.name)
    path = f"/{method.containing_service.full_name}/{method.name}"
    target = mesh.target if service == "router" else f"unix:{mesh.places.socket(service)}"
    opened: Any = grpc.insecure_channel(target)
    with opened as channel:
        for request in hostile_requests(base or empty_message(service, method.input_type.name), SEED, REQUESTS):
            error = send(channel, path, method, request, metadata[service])
            if error is not None and not is_own_deadline(error):
                reason = reason_of(error)
                shown = f"{error}\n{request[:500].hex()}"
                assert f"ERROR_REASON_{reason}" in ErrorReason.DESCRIPTOR.values_by_name, shown
                assert reason not in ("INTERNAL", "BACKEND_FAILED", "NO_BACKEND"), shown


def empty_message(service: str, name: str) -> Message:
    made: Message = getattr(SERVICES[service], name)()
    return made
