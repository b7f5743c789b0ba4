"""A node in the test's process whose model is behind a server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from helpers.inference import NodeUnderTest, serve
from helpers.upstream import Answer, ScriptedUpstream, scripted_upstream
from helpers.vendors import Vendor
from ssop_inference.assembly import build_node
from ssop_inference.settings import InferenceSettings, ModelSettings
from ssop_inference.upstream import UpstreamBackend


@dataclass(frozen=True)
class UpstreamNode:
    """A node, and the server behind it."""

    running: NodeUnderTest
    upstream: ScriptedUpstream
    backend: UpstreamBackend


def model_settings(vendor: Vendor, url: str, **fields: Any) -> ModelSettings:
    """The settings of a model of a vendor whose server is at `url`."""
    if vendor.backend == "openai" and vendor.name in {"openai", "xai", "deepseek", "qwen"}:
        # Told by their host, which a test can't have.
        fields = {"dialect": vendor.name, **fields}
    return ModelSettings(name="m", backend=vendor.backend, url=url, **fields)


@asynccontextmanager
async def upstream_node(vendor: Vendor, answer: Answer, **fields: Any) -> AsyncIterator[UpstreamNode]:
    """A node that is ready; `answer` is what its server does with a generation."""
    async with scripted_upstream(vendor.answers(answer)) as upstream:
        node = build_node(InferenceSettings(models=(model_settings(vendor, upstream.url, **fields),)))
        try:
            await node.start(timeout_s=10)
            backend = node.models[0].backend
            assert isinstance(backend, UpstreamBackend)
            yield UpstreamNode(serve(node), upstream, backend)
        finally:
            await node.close()
