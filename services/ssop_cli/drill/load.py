"""The steady load of a drill: a few clients that ask for small documents and judge what they get."""

import random
import threading
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import grpc

from ssop.v1 import mesh_pb2
from ssop_cli.drill.ledger import SCHEMA, Kind, Ledger, Outcome, Verdict, changed_field, lie_of
from ssop_cli.mesh import Access
from ssop_sdk import GenerationInterrupted, ProtocolError, SsopClient, SsopError

CLIENTS: Final = 3
TIMEOUT_S: Final = 30.0
INTERVAL_S: Final = 0.25
"""A client begins at most one request in so much time, so that quick errors make no storm."""
UNREACHABLE: Final = "UNREACHABLE"
"""The reason of requests that no router took; the mesh could not say one."""
_REPEATED: Final = 6
_STORED: Final = frozenset({mesh_pb2.CACHE_REASON_HIT, mesh_pb2.CACHE_REASON_FOLLOWER})
_SUBJECTS: Final = ("the login", "the new menu", "the delivery", "the price", "the support", "the update")
_VERBS: Final = ("works well", "is broken", "is slow", "is fine", "surprised us", "cost us a day")


class Load:
    """Clients in threads, as long as the block lasts. `seed` makes the prompts repeatable."""

    def __init__(self, access: Access, seed: int, clients: int = CLIENTS) -> None:
        self.ledger = Ledger()
        self._access = access
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed} {number}"),), name=f"drill-{number}")  # noqa: S311
            for number in range(clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.daemon = True
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Let requests in flight end, and wait for that. Idempotent."""
        self._stop.set()
        deadline_s = time.monotonic() + TIMEOUT_S + 10.0
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def window(self, from_s: float, until_s: float) -> list[Outcome]:
        """Outcomes of a span of time."""
        with self._lock:
            return self.ledger.window(from_s, until_s)

    def overdue(self) -> list[str]:
        """Requests without an outcome that are long past their deadline."""
        with self._lock:
            return self.ledger.overdue(time.monotonic())

    def _run(self, chance: random.Random) -> None:
        access = self._access
        with SsopClient(
            access.api_key, access.target, output_schema=dict(SCHEMA), timeout_s=TIMEOUT_S, allow_degraded=True
        ) as client:
            count = 0
            while not self._stop.is_set():
                begun_s = time.monotonic()
                count += 1
                # Every second prompt is one that was asked before, so that the store has its share.
                self._ask(client, _repeated(chance) if count % 2 else _fresh(chance))
                self._stop.wait(max(0.0, INTERVAL_S - (time.monotonic() - begun_s)))

    def _ask(self, client: SsopClient, prompt: str) -> None:
        request_id = f"drill-{uuid.uuid4().hex}"
        started_s = time.monotonic()
        with self._lock:
            self.ledger.begin(request_id, started_s + TIMEOUT_S)
        verdict = Verdict(Kind.WRONG, "the client thread broke")
        try:
            verdict = _judge(client, prompt, request_id)
        finally:
            outcome = Outcome(request_id, prompt, started_s, time.monotonic(), verdict)
            with self._lock:
                self.ledger.end(outcome)


def _judge(client: SsopClient, prompt: str, request_id: str) -> Verdict:
    """Ask once, and say how it ended."""
    seen: list[tuple[str, Any]] = []
    with client.generate(prompt, request_id=request_id, max_output_tokens=48) as stream:
        try:
            for frame in stream:
                seen.extend(frame.delta.items())
            document = stream.result()
        except Exception as error:  # noqa: BLE001 - one that is not of the SDK's tree is what the drill looks for
            return judge_error(error, seen)
        level = stream.status.degraded_level if stream.status is not None else 0
        stored = stream.decision is not None and stream.decision.cache_reason in _STORED
    if fault := lie_of(seen, document):
        return Verdict(Kind.WRONG, fault)
    if level:
        return Verdict(Kind.DEGRADED, level=level)
    return Verdict(Kind.OK, is_stored=stored, values=tuple(sorted(document.items())))


def judge_error(error: Exception, seen: Sequence[tuple[str, Any]]) -> Verdict:
    """What an error says, after fields that were seen already."""
    if name := changed_field(seen, None):
        return Verdict(Kind.WRONG, f"field {name} changed its value")
    if isinstance(error, ProtocolError):
        return Verdict(Kind.WRONG, f"frames are missing or broken: {error.reason}")
    if not isinstance(error, SsopError):
        return Verdict(Kind.WRONG, f"an error without a type of its own: {type(error).__name__}")
    is_away = error.code is grpc.StatusCode.UNAVAILABLE and not error.from_mesh
    is_cut = isinstance(error, GenerationInterrupted)
    return Verdict(Kind.ERROR, UNREACHABLE if is_away and not is_cut else error.reason)


def _repeated(chance: random.Random) -> str:
    number = chance.randrange(_REPEATED)
    return f"Judge this post: {_SUBJECTS[number]} {_VERBS[number]}."


def _fresh(chance: random.Random) -> str:
    return f"Judge post {chance.randrange(10**9)}: {chance.choice(_SUBJECTS)} {chance.choice(_VERBS)}."
