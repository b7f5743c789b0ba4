"""Runs in which the model is killed at a random token, and the ledger of what clients saw."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from helpers.eventually import eventually
from helpers.ledger import LedgerFault, check_charges, check_final, check_one_hand, check_terminal
from helpers.redis_server import redis_pair
from helpers.replay_model import BUFFER_BYTES, SCHEMA, SEED_CHARS, Question, write_document, write_text
from helpers.replay_nodes import running_replay_nodes
from helpers.router_fleet import PATIENCE_MS, Fleet, run_fleet
from helpers.scripted_mesh import SECRET
from ssop_codec import FrameKind
from ssop_sdk import AsyncSsopClient, RetryPolicy, SsopError

TIERS: Final = {"full-1": "full", "full-2": "full", "full-3": "full", "full-4": "full", "lite-1": "lite"}
MONTH_MS: Final = 2_678_400_000
# Nodes die by design here, so they are tried again at once and are given all of their share.
HEALTH: Final = {"probe_ms": 100, "good_probes": 1, "slow_start_ms": 0, "backoff_min_ms": 0, "backoff_max_ms": 0}
_VALIDATOR: Final = jsonschema_rs.validator_for(SCHEMA)
_LONGEST: Final = 600
"""Characters up to which kills are drawn; where an answer is shorter they come behind its last token."""
_TOLD: Final = frozenset({"GENERATION_INTERRUPTED", "NO_BACKEND"})
"""What a client may hear in the place of an answer."""
_PAUSE_S: Final = 0.5
_PATIENCE_S: Final = 300.0
_MOMENT_S: Final = 1.0


@dataclass
class Run:
    """What one client saw. `first_seqs` are those of the nodes that went on."""

    question: Question
    is_text: bool
    sent: list[tuple[tuple[str | int, ...], Any]] = field(default_factory=list)
    text: str = ""
    result: Any = None
    error: SsopError | None = None
    level: int = 0
    first_seqs: list[int] = field(default_factory=list)
    charged: int = 0
    frames: int = 0
    last_seq: int = 0
    turned_away: int = 0
    """How often no node was there to begin, so that it was asked again as another request."""

    @property
    def was_turned_away(self) -> bool:
        """Whether nothing was sent, since no node was there."""
        return self.error is not None and self.error.reason == "NO_BACKEND" and not self.frames

    def ask_again(self) -> None:
        """Become another request for the same."""
        self.turned_away += 1
        self.error = None
        request = f"{self.question.request.partition('.')[0]}.{self.turned_away}"
        self.question = replace(self.question, request=request)

    @property
    def outcome(self) -> str:
        """In a word."""
        if self.error is not None:
            return self.error.reason
        if self.level:
            return "degraded"
        return "continued" if self.first_seqs else "unseen"


def draw(number: int, rng: random.Random) -> Run:
    """A request whose node, or nodes, will be killed."""
    kills = sorted(rng.randrange(_LONGEST) for _ in range(rng.choice([1, 1, 1, 2])))
    question = Question(f"question {number}", f"k-{number}", tuple(kills))
    return Run(question, is_text=rng.random() < 0.2)


async def ask(client: AsyncSsopClient, run: Run) -> None:
    """Ask, and note what comes."""
    schema = None if run.is_text else SCHEMA
    stream = client.generate(
        run.question.write(), output_schema=schema, request_id=run.question.request, stream_buffer_size=BUFFER_BYTES
    )
    parts: list[str] = []
    try:
        async for frame in stream:
            if frame.is_part:
                parts.append(str(frame.value))
            elif frame.kind == FrameKind.VALUE:
                value = "".join([*parts, str(frame.value)]) if parts else frame.value
                parts.clear()
                run.sent.append((frame.tokens, value))
        run.result = await stream.result()
    except SsopError as error:
        run.error = error
    run.text = stream.text
    run.last_seq, run.frames = stream.last_seq, stream.frames_verified
    if stream.status is not None:
        run.level = stream.status.degraded_level
        run.first_seqs = [entry.first_seq for entry in stream.status.continuations]
    if stream.accounting is not None and stream.usage is not None:
        run.charged = stream.usage.input_tokens + stream.usage.output_tokens


def check_run(run: Run) -> None:
    """Raises LedgerFault unless the answer is complete and valid, or the client was told, and no field ever changed."""
    if run.frames != run.last_seq:
        raise LedgerFault("frames were lost, or came twice")
    if run.error is not None:
        if not run.error.from_mesh or run.error.reason not in _TOLD:
            raise LedgerFault(f"a client was told {run.error.reason}: {run.error}")
        _check_beginning(run)
        return
    if run.is_text:
        check_one_hand(run.result, write_text(run.result[:SEED_CHARS], run.question.ask))
        return
    check_final(run.sent, run.result)
    if not _VALIDATOR.is_valid(run.result):
        raise LedgerFault("an answer does not conform")
    check_one_hand(run.result, write_document(run.result["seed"], run.question.ask))


def _check_beginning(run: Run) -> None:
    """What was sent of an answer that came to no end is that of one hand, and each field once."""
    if run.is_text:
        if len(run.text) >= SEED_CHARS:
            check_one_hand(run.text, write_text(run.text[:SEED_CHARS], run.question.ask)[: len(run.text)])
    elif run.sent:
        check_final(run.sent, write_document(str(run.sent[0][1]), run.question.ask))


def check_turned_away(log: Sequence[Mapping[str, Any]]) -> None:
    """Raises LedgerFault where a router said that no node was left while one of the tier was in all the time."""
    spans = _spans_in(log)
    for line in log:
        if line["message"] != "request" or line["outcome"] != "NO_BACKEND":
            continue
        ended_s = _time_s(line)
        begun_s = ended_s - line["total_ms"] / 1000
        for name, from_s, until_s in spans:
            # What happened within a moment of it is in the log in any order.
            if from_s < begun_s - _MOMENT_S and until_s > ended_s + _MOMENT_S:
                raise LedgerFault(f"request {line['request_id']} was turned away while {name} was there")


def _spans_in(log: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """From when until when, in seconds, nodes of the full tier were heard and in rotation, as a router's log has it."""
    spans: list[tuple[str, float, float]] = []
    begun_s: dict[str, float] = {}
    heard: set[str] = set()
    out: set[str] = set()
    for line in log:
        name = Path(str(line.get("address"))).stem
        match line["message"]:
            case "a node says its status":
                heard.add(name)
            case "a node's status is lost":
                heard.discard(name)
            case "a node is out of rotation":
                out.add(name)
            case "a node is in rotation again":
                out.discard(name)
        if TIERS.get(name) != "full":
            continue
        if name in heard - out:
            begun_s.setdefault(name, _time_s(line))
        elif name in begun_s:
            spans.append((name, begun_s.pop(name), _time_s(line)))
    return [*spans, *((name, from_s, math.inf) for name, from_s in begun_s.items())]


def _time_s(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()


@dataclass
class KillMesh:
    """A mesh whose nodes are killed."""

    fleet: Fleet
    folder: Path
    charged_before: int = 0
    asked: set[str] = field(default_factory=set)
    """The ids of the requests."""

    @property
    def deaths(self) -> int:
        """Processes that were killed and started again."""
        return len((self.folder / "deaths.log").read_text().splitlines())

    @property
    def claims(self) -> int:
        """Kills that were asked for and came."""
        return len(list((self.folder / "claims").iterdir()))

    async def run(self, runs: Sequence[Run], at_once: int) -> None:
        """Ask all, so many at once."""
        gate = asyncio.Semaphore(at_once)
        router = self.fleet.routers[0]
        async with AsyncSsopClient(
            router.key,
            router.address,
            policy="full,no_cache",
            allow_degraded=True,
            timeout_s=60,
            # A request that is repeated has two terminal records, so each repetition is one of its own.
            retry=RetryPolicy(max_retries=0),
        ) as client:

            async def one(run: Run) -> None:
                async with gate, asyncio.timeout(_PATIENCE_S):
                    await self._ask(client, run)
                    while run.was_turned_away:
                        # Kills may come faster than a busy machine starts nodes.
                        await asyncio.sleep(_PAUSE_S)
                        run.ask_again()
                        await self._ask(client, run)

            await asyncio.gather(*(one(run) for run in runs))

    async def _ask(self, client: AsyncSsopClient, run: Run) -> None:
        self.asked.add(run.question.request)
        await ask(client, run)

    async def settle(self) -> None:
        """Wait until nothing is reserved and each request that was asked has its line in the log."""
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(self.fleet.books)).reserved:
                await asyncio.sleep(0.05)
        with suppress(AssertionError):
            # A record that is missing is the ledger's to tell.
            await eventually(lambda: self.asked <= set(self.ended()))

    def ended(self) -> list[str]:
        """The ids in the router's terminal records."""
        return [str(line["request_id"]) for line in self.fleet.routers[0].log if line.get("message") == "request"]

    def check(self, runs: Sequence[Run]) -> None:
        """The ledger of all that was asked. Raises LedgerFault."""
        for run in runs:
            check_run(run)
        check_terminal(self.asked, self.ended())
        check_turned_away(self.fleet.routers[0].log)
        check_charges(self.fleet.books(), [self.charged_before, *(run.charged for run in runs)])


@asynccontextmanager
async def run_kill_mesh(folder: Path, *, without: str = "") -> AsyncIterator[KillMesh]:
    """Nodes, a router, the cache service and Redis, each a process. `without`: see `helpers.replay_nodes`."""
    secret = folder / "secret"
    secret.write_text(SECRET.hex())
    limits = {"budget_tokens": 10**9, "budget_window_ms": MONTH_MS}
    with redis_pair() as servers, running_replay_nodes(folder, TIERS, secret, without=without) as addresses:
        async with run_fleet(
            folder,
            {},
            routers=1,
            servers=servers,
            cache=limits,
            store_ms=PATIENCE_MS,
            addresses=addresses,
            health=HEALTH,
            max_attempts=10,
        ) as fleet:
            mesh = KillMesh(fleet, folder)
            router = fleet.routers[0]
            async with AsyncSsopClient(router.key, router.address, policy="full,no_cache", timeout_s=20) as client:

                async def serves() -> bool:
                    try:
                        await client.generate("warm", output_schema=None, request_id=f"w-{random.random()}").result()
                    except SsopError:
                        return False
                    return True

                async with asyncio.timeout(60):
                    while not await serves():
                        await asyncio.sleep(0.05)
            await mesh.settle()
            mesh.charged_before = fleet.books().charged
            yield mesh


def tell(runs: Sequence[Run], mesh: KillMesh) -> str:
    """What happened, in a line."""
    outcomes = Counter(run.outcome for run in runs)
    twice = sum(len(run.first_seqs) > 1 for run in runs)
    why = Counter(str(run.error.metadata) for run in runs if run.error is not None)
    return (
        f"{len(runs)} runs, {mesh.claims} kills: {dict(sorted(outcomes.items()))};"
        f" turned away {sum(run.turned_away for run in runs)} times;"
        f" {twice} by three nodes or more; {dict(why) or 'no errors'}"
    )
