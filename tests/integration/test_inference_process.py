"""The `ssop-inference` process, over gRPC."""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from helpers.child_environ import child_environ
from helpers.inference import Answer, user_prompt
from helpers.models import models_dir
from ssop.v1 import inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Peer
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_peer import connect
from ssop_chassis.identity import Principal, Signer
from ssop_codec import Verdict

SCHEMA = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}
START_S = 60.0


class NodeProcess:
    """A started process and a connection to it."""

    def __init__(self, process: asyncio.subprocess.Process, peer: Peer, secret: bytes) -> None:
        self.process = process
        self.peer = peer
        signer = Signer(secret, "test", lambda: time.time_ns() // 1_000_000)
        self.metadata = signer.metadata(Principal("acme", "k1", frozenset({"lite"})))

    async def is_serving(self) -> bool:
        try:
            data = await self.peer.unary(
                "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest().SerializeToString(), timeout_s=30
            )
        except MeshError:
            return False
        return bool(health_pb2.HealthCheckResponse.FromString(data).status == health_pb2.HealthCheckResponse.SERVING)


@asynccontextmanager
async def node_process(tmp_path: Path) -> AsyncIterator[NodeProcess]:
    secret = secrets.token_bytes(32)
    (tmp_path / "secret").write_text(secret.hex())
    address = f"unix:{tmp_path}/n.sock"
    config = tmp_path / "ssop.toml"
    config.write_text(
        f"""
[mesh]
secret_file = "{tmp_path}/secret"
drain_ms = 3000

[inference]
node = "test-node"
listen = ["{address}"]
models_dir = "{models_dir()}"
"""
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ssop_inference.main",
        "--config",
        str(config),
        env={**child_environ(), "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=asyncio.subprocess.PIPE,
    )
    peer = connect(address)
    try:
        yield NodeProcess(process, peer, secret)
    finally:
        await peer.close()
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def wait_until_serving(node: NodeProcess) -> None:
    deadline_s = time.monotonic() + START_S
    while not await node.is_serving():
        assert node.process.returncode is None, await node.process.communicate()
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)


async def generate(node: NodeProcess, answer: Answer, **sampling: object) -> None:
    is_plain = bool(sampling)
    request = inference_pb2.InferenceServiceGenerateRequest(
        request_id="r-1",
        prompt=user_prompt("Tell a very long story.", schema=None if is_plain else SCHEMA, **sampling),
    )
    await node.peer.stream(
        "/ssop.v1.InferenceService/Generate",
        request.SerializeToString(),
        answer.take,
        timeout_s=60,
        metadata=node.metadata,
    )


async def test_process_serves_after_a_real_generation_and_drains(tmp_path: Path) -> None:
    async with node_process(tmp_path) as node:
        await wait_until_serving(node)
        answer = Answer()
        await generate(node, answer)
        assert answer.decoder.verdict == Verdict.OK

        running = asyncio.ensure_future(generate(node, Answer(), max_output_tokens=24, temperature=0.5))
        await asyncio.sleep(0)
        node.process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(node.process.communicate(), 60)
        await asyncio.wait({running})
        assert node.process.returncode == 0, log.decode()


async def test_call_without_a_principal_is_refused(tmp_path: Path) -> None:
    async with node_process(tmp_path) as node:
        await wait_until_serving(node)
        with pytest.raises(MeshError) as caught:
            await node.peer.unary("/ssop.v1.InferenceService/WarmUp", b"", timeout_s=30)
        assert caught.value.reason == ErrorReason.ERROR_REASON_PRINCIPAL_INVALID


async def test_sigterm_in_the_middle_of_a_long_generation_ends_cleanly(tmp_path: Path) -> None:
    async with node_process(tmp_path) as node:
        await wait_until_serving(node)
        answer = Answer()
        running = asyncio.ensure_future(generate(node, answer, max_output_tokens=1500, temperature=1.0))
        while len(answer.messages) < 5 and not running.done():
            await asyncio.sleep(0.02)
        node.process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(node.process.communicate(), 60)
        await asyncio.wait({running})
        assert node.process.returncode == 0, log.decode()
        assert b"Traceback" not in log
