"""The router's edge for documents over gRPC, before a real retrieval service with a hashing embedder."""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from helpers.rag import RagUnderTest
from helpers.sdk_clients import KEY
from ssop.v1 import rag_pb2
from ssop_chassis.call import bind
from ssop_chassis.deadline import monotonic_ms
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.grpc_server import start_server
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.memory import MemoryPeer
from ssop_chassis.serving import wall_clock_ms
from ssop_router.answers import Answers
from ssop_router.background import Background
from ssop_router.documents import DocumentEdge
from ssop_router.limits import Limits
from ssop_router.metrics import RouterMetrics
from ssop_router.retrieval import Retrieval
from ssop_router.settings import RouterSettings

_SECRET = hashlib.sha256(b"a secret for tests").digest()


@asynccontextmanager
async def serve_documents(folder: Path, **settings: Any) -> AsyncIterator[str]:
    """Serve tenant `acme`, whose key is KEY; other keys lack the scope. Yields the address."""
    router = RouterSettings.model_validate({"nodes": ["x"], "keys_file": "x"})
    metrics = RouterMetrics(CollectorRegistry())

    def authenticate(metadata: Any) -> Principal:
        return Principal("acme", "k", frozenset({"rag"} if metadata["authorization"] == f"Bearer {KEY}" else {"lite"}))

    async with RagUnderTest(folder / "index", **settings) as rag:
        edge = DocumentEdge(
            MemoryPeer([rag.service], inner_authenticate(_SECRET)),
            Answers(None, router, Background(), metrics, Limits(router, metrics, monotonic_ms), sign_own=dict),
            Retrieval(None, router, monotonic_ms),
            router,
            metrics,
            sign=Signer(_SECRET, "router", wall_clock_ms).metadata,
        )
        service = bind(rag_pb2.DESCRIPTOR.services_by_name["RagService"], edge)
        with tempfile.TemporaryDirectory(prefix="sdk") as sockets:
            server = await start_server([service], [f"unix:{sockets}/r.sock"], authenticate=authenticate)
            try:
                yield server.addresses[0]
            finally:
                await server.stop(0)
