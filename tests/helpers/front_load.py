"""Clients of a front, until standard input ends: `python -m helpers.front_load CA KEY_FILE`; then JSON of a `Tally`.

One uses the SDK, one gRPC as it comes, one the HTTP edge; all over TLS on port 443 of this network.
"""

import asyncio
import itertools
import json
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import httpx

from ssop.v1 import content_pb2, frame_pb2, router_pb2
from ssop_sdk import AsyncSsopClient
from ssop_sdk.errors import SsopError
from ssop_sdk.target import Tls

SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "ok": {"type": "boolean"}},
    "required": ["mood", "ok"],
    "additionalProperties": False,
}
RECORDING: Final = {
    "tokens": [[10, '{"mo'], [10, 'od": "go'], [10, 'od", "o'], [10, 'k": tr'], [10, "ue}"]],
    "stop": "end",
    "input_tokens": 12,
}
"""What a `replay` node answers."""
POLICY: Final = "full"
TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.3
KINDS: Final = ("sdk", "grpc", "http")
AT_ONCE: Final = 2
"""Clients of each kind, each of which asks one thing at a time."""


@dataclass
class Tally:
    """What came of the requests, by kind of client. `failures` are texts, with the kind and the second."""

    requests: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    answers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    degraded: int = 0
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


class Clients:
    """The three."""

    def __init__(self, ca: Path, key: str, tally: Tally) -> None:
        self._tally = tally
        self._key = key
        self._numbers = itertools.count()
        tls = Tls(root_certificates=ca, server_name="localhost")
        self._sdk = AsyncSsopClient(key, "https://127.0.0.1:443", tls=tls, timeout_s=TIMEOUT_S)
        credentials = grpc.ssl_channel_credentials(ca.read_bytes())
        # Its own retries are off: what it sees is what a client without any sees.
        options = [("grpc.enable_retries", 0), ("grpc.ssl_target_name_override", "localhost")]
        self._channel = grpc.aio.secure_channel("127.0.0.1:443", credentials, options=options)
        self._generate: Any = self._channel.unary_stream("/ssop.v1.RouterService/Generate")
        context = ssl.create_default_context(cafile=str(ca))
        # One that is used again may be closed in that very moment: a worker of nginx that goes closes idle connections,
        # and HTTP/1.1 has no word for it.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(verify=context, timeout=TIMEOUT_S, limits=limits)

    async def close(self) -> None:
        """Drop the connections."""
        await self._sdk.close()
        await self._channel.close()
        await self._http.aclose()

    def _text(self) -> str:
        # Never the same, so that no answer comes from the cache.
        return f"How is it, {next(self._numbers)} of {time.time_ns()}?"

    async def sdk(self) -> Any:
        """One answer by the SDK."""
        stream = self._sdk.generate(self._text(), output_schema=SCHEMA, policy=POLICY, allow_degraded=True)
        return await stream.result()

    async def grpc(self) -> Any:
        """One answer by gRPC alone."""
        part = content_pb2.ContentPart(text=self._text())
        prompt = content_pb2.Prompt(
            messages=[content_pb2.Message(role=content_pb2.ROLE_USER, parts=[part])],
            output_schema=content_pb2.OutputSchema(json_schema=json.dumps(SCHEMA)),
        )
        request = router_pb2.GenerateRequest(prompt=prompt)
        found: dict[str, Any] = {}
        metadata = (("authorization", f"Bearer {self._key}"), ("x-router-policy", POLICY))
        async for chunk in self._generate(request.SerializeToString(), timeout=TIMEOUT_S, metadata=metadata):
            for frame in frame_pb2.Chunk.FromString(chunk).frames:
                if frame.kind == frame_pb2.FRAME_KIND_STATUS:
                    self._tally.degraded += frame.status.degraded_level > 0
                if frame.HasField("end"):
                    found["verdict"] = frame.end.verdict
        return {"mood": "good", "ok": True} if found.get("verdict") == frame_pb2.VERDICT_OK else found

    async def http(self) -> Any:
        """One answer by the HTTP edge."""
        answer = await self._http.post(
            "https://localhost/v1/chat/completions",
            headers={"authorization": f"Bearer {self._key}", "x-router-policy": POLICY},
            json={
                "model": "auto",
                "messages": [{"role": "user", "content": self._text()}],
                "response_format": {"type": "json_schema", "json_schema": {"name": "mood", "schema": SCHEMA}},
            },
        )
        if answer.status_code != 200:
            raise RuntimeError(f"HTTP {answer.status_code}: {answer.text[:200]}")
        return json.loads(answer.json()["choices"][0]["message"]["content"])


async def load(clients: Clients, tally: Tally, stop: asyncio.Event) -> None:
    """Ask, each client one request after the other, until told to stop."""
    begun_s = time.monotonic()
    kinds: dict[str, Callable[[], Awaitable[Any]]] = {"sdk": clients.sdk, "grpc": clients.grpc, "http": clients.http}

    async def ask(kind: str) -> None:
        while not stop.is_set():
            tally.requests[kind] += 1
            started_s = time.monotonic()
            try:
                answer = await kinds[kind]()
            except (SsopError, grpc.aio.AioRpcError, httpx.HTTPError, RuntimeError, ValueError) as error:
                text = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                tally.failures.append(f"{kind} after {started_s - begun_s:.1f} s: {type(error).__name__} {text}"[:300])
                # As a client would that has a word to say on it.
                await asyncio.sleep(0.05)
            else:
                tally.answers[kind] += 1
                if answer != {"mood": "good", "ok": True}:
                    tally.wrong.append(f"{kind}: {answer}"[:200])
            tally.slowest_s = max(tally.slowest_s, time.monotonic() - started_s)
            # All together stay below what one router lets in of a tenant while it can't ask for the limit.
            await asyncio.sleep(_PAUSE_S)

    await asyncio.gather(*(ask(kind) for kind in KINDS for _ in range(AT_ONCE)))


async def main(ca: Path, key_file: Path) -> None:
    """Run until standard input ends."""
    tally = Tally()
    clients = Clients(ca, key_file.read_text().strip(), tally)
    stop = asyncio.Event()
    loading = asyncio.create_task(load(clients, tally, stop))
    await asyncio.to_thread(sys.stdin.read)
    stop.set()
    await loading
    await clients.close()
    print(json.dumps(asdict(tally)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
