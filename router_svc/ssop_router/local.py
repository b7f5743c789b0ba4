"""The decision core in the application's own process, for those who talk to their model servers directly.

The application says which servers there are, asks where a request should go, and says how it went. Nothing here opens
a connection. Safe on several threads.
"""

import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from prometheus_client import CollectorRegistry

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import NodeReason, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.conversations import Conversations
from ssop_router.core.complexity import ComplexityModel
from ssop_router.core.conversation import Conversation
from ssop_router.core.decision import Candidate, Decision, Features, decide, weigh
from ssop_router.core.explanation import Explanation, explain
from ssop_router.core.policy import TIER_OF_WORD, WORD_OF_TIER, parse_policy
from ssop_router.core.score import Score
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.core.success import Outcome, Outcomes
from ssop_router.metrics import RouterMetrics
from ssop_router.policy_file import make_policy
from ssop_router.policy_settings import PolicySettings
from ssop_router.scoring import Classifier, Scorer, open_classifier

TierWord = Literal["lite", "full"]
_CONVERSATIONS: Final = 10_000
_SCOPES: Final = frozenset({"lite", "full"})


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A model server. `slots` is how many requests it works on at once; `context_tokens` 0 is unknown."""

    address: str
    tier: TierWord
    model: str = ""
    slots: int = 1
    context_tokens: int = 0
    capabilities: frozenset[str] = frozenset()
    has_logprobs: bool = True


@dataclass(slots=True)
class _Server:
    node: LocalNode
    outcomes: Outcomes
    in_flight: int = 0
    is_ready: bool = True
    slots_busy: float = 0.0
    queue_length: float = 0.0
    memory_free_ratio: float | None = None
    told_at_ms: int | None = None

    def view(self, now_ms: int) -> NodeView:
        node = self.node
        model = ModelView(
            node.model or node.address,
            ModelState.MODEL_STATE_READY if self.is_ready else ModelState.MODEL_STATE_LOADING,
            frozenset({TIER_OF_WORD[node.tier]}),
            node.context_tokens,
            node.slots,
            self.slots_busy,
            self.queue_length,
            node.capabilities,
            node.has_logprobs,
        )
        # A server of which nothing is ever told is as busy as this process makes it.
        seen_at_ms = now_ms if self.told_at_ms is None else self.told_at_ms
        return NodeView(
            node.address,
            node.address,
            (model,),
            seen_at_ms,
            True,
            self.in_flight,
            self.memory_free_ratio,
            successes=self.outcomes.view(),
        )


class Choice:
    """Where a request goes, and why. Say how it went, once: in a `with` block, or with one of the methods.

    In a block, an exception is a failure of the server unless one of the methods was called before. A choice that is
    thrown away without a word counts as neutral.
    """

    def __init__(
        self, router: "LocalRouter", decision: Decision, candidate: Candidate, *, model: str, decision_us: int
    ) -> None:
        self.address = candidate.address
        self.model = model
        self.tier = WORD_OF_TIER[decision.tier]
        self.reason = _word(TierReason, decision.tier_reason, "TIER_REASON_")
        self.node_reason = _word(NodeReason, decision.node_reason, "NODE_REASON_")
        self.rule = decision.rule.name if decision.rule is not None else ""
        self.complexity = decision.complexity.score if decision.complexity is not None else None
        self.abstention = decision.complexity.abstention if decision.complexity is not None else ""
        self.score: Score | None = decision.score
        self.weak_signals = decision.weak_signals
        self.decision_us = decision_us
        self._report = weakref.finalize(self, router._finish, self.address, Outcome.NEUTRAL)  # noqa: SLF001 - its own half
        self._report.atexit = False
        self._router = router

    def __repr__(self) -> str:
        return f"Choice(address={self.address!r}, model={self.model!r}, tier={self.tier!r}, reason={self.reason!r})"

    def succeeded(self) -> None:
        """The server answered."""
        self._end(Outcome.SUCCESS)

    def failed(self) -> None:
        """The server failed: no connection, a 5xx, no first token in time."""
        self._end(Outcome.FAILURE)

    def was_busy(self) -> None:
        """The server is full: a 429 or a 503. No failure."""
        self._end(Outcome.BUSY)

    def was_cancelled(self) -> None:
        """The caller went away, or asked for what no server would do (a 4xx). Says nothing about the server."""
        self._end(Outcome.NEUTRAL)

    def _end(self, outcome: Outcome) -> None:
        if self._report.detach() is not None:
            self._router._finish(self.address, outcome)  # noqa: SLF001 - its own half

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.succeeded()
        elif issubclass(kind, Exception):
            self.failed()
        else:
            # Cancellation and interrupts are the caller's.
            self.was_cancelled()


class LocalRouter:
    """Chooses among model servers, as a router of the mesh does among nodes.

    `settings` takes the keys of `[router]` that are policy (docs/settings.md). `classifier` is a model of your own, or
    None for the one that the settings name. `clock_s` is monotonic. Raises SettingsError, and ValueError for no nodes.
    """

    def __init__(
        self,
        nodes: Iterable[LocalNode],
        *,
        settings: PolicySettings | Mapping[str, Any] | None = None,
        classifier: ComplexityModel | None = None,
        seed: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        policy = settings if isinstance(settings, PolicySettings) else make_policy(dict(settings or {}), "settings")
        found = Classifier(classifier, "") if classifier is not None else open_classifier(policy)
        self._settings = policy.decision(found.threshold)
        self._scorer = Scorer(found, RouterMetrics(CollectorRegistry()), timeout_us=policy.classifier_timeout_us)
        self._clock_s = clock_s
        self._rng = random.Random(seed)  # noqa: S311 - spreads load, guards nothing
        self._lock = threading.RLock()
        self._conversations = Conversations(_CONVERSATIONS, policy.conversation_ttl_ms)
        self._servers = {
            node.address: _Server(
                node, Outcomes(half_life_ms=policy.success_half_life_ms, window_ms=policy.cache_rule.window_ms)
            )
            for node in nodes
        }
        if not self._servers:
            raise ValueError("a router needs at least one node")
        self.classifier_fault = found.fault
        """Why there is no classifier, in one word; empty where there is one."""
        self.classifier_version = self._scorer.version
        """Version of the classifier; empty where there is none."""

    def route(
        self,
        text: str,
        *,
        policy: str = "auto",
        model: str = "",
        conversation_id: str = "",
        documents: int = 0,
        prompt_bytes: int | None = None,
        max_output_tokens: int = 0,
        capabilities: Iterable[str] = (),
        needs_logprobs: bool = False,
        exclude: Iterable[str] = (),
    ) -> Choice:
        """Choose a server for a request whose last user message is `text`.

        `prompt_bytes` counts the whole prompt; absent, the text. `exclude` names servers that have failed for this
        request. A cascade begins with a lite server; whether its answer is kept is the application's to judge.
        Raises MeshError: NO_BACKEND where no server can take it now, and what `decide` refuses.
        """
        with self._lock, self._translated():
            now_ms = self._now_ms()
            conversation = self._conversations.find("", conversation_id, now_ms)
            features = _features(
                text, policy, model, conversation,
                documents=documents, prompt_bytes=prompt_bytes, max_output_tokens=max_output_tokens,
                capabilities=frozenset(capabilities), needs_logprobs=needs_logprobs,
            )  # fmt: skip
            snapshot = self._snapshot(now_ms, frozenset(exclude))
            started_ns = time.perf_counter_ns()
            decision = decide(features, snapshot, self._settings, now_ms, self._rng, score_text=self._scorer)
            decision_us = (time.perf_counter_ns() - started_ns) // 1000
            if decision.candidate is None:
                raise MeshError(ErrorReason.ERROR_REASON_NO_BACKEND, "no server can take the request now")
            self._conversations.advance("", conversation_id, decision, now_ms)
            server = self._servers[decision.candidate.address]
            server.in_flight += 1
            return Choice(self, decision, decision.candidate, model=server.node.model, decision_us=decision_us)

    def explain(self, text: str, *, policy: str = "auto", model: str = "", documents: int = 0) -> Explanation:
        """How a request would be decided now; nothing is counted. Raises as `route`."""
        with self._lock, self._translated():
            now_ms = self._now_ms()
            features = _features(text, policy, model, None, documents=documents)
            snapshot = self._snapshot(now_ms, frozenset())
            decision = decide(features, snapshot, self._settings, now_ms, self._rng, score_text=self._scorer)
            complexity, score = weigh(features, snapshot, self._settings, now_ms, self._rng, score_text=self._scorer)
            return explain(
                decision, features, snapshot, self._settings, now_ms=now_ms, complexity=complexity, score=score
            )

    def update(
        self,
        address: str,
        *,
        slots_busy: float = 0.0,
        queue_length: float = 0.0,
        memory_free_ratio: float | None = None,
        is_ready: bool = True,
    ) -> None:
        """Tell what a server says of itself; from then on, what is not told again grows old. Raises KeyError."""
        with self._lock:
            server = self._servers[address]
            server.slots_busy, server.queue_length = slots_busy, queue_length
            server.memory_free_ratio, server.is_ready = memory_free_ratio, is_ready
            server.told_at_ms = self._now_ms()

    def translate(self, error: MeshError) -> Exception:
        """The error that is raised for one of the core's."""
        return error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except MeshError as error:
            other = self.translate(error)
            if other is error:
                raise
            raise other from None

    def _finish(self, address: str, outcome: Outcome) -> None:
        with self._lock:
            server = self._servers[address]
            server.in_flight -= 1
            server.outcomes.record(outcome, self._now_ms())

    def _snapshot(self, now_ms: int, exclude: frozenset[str]) -> Snapshot:
        return Snapshot(
            tuple(server.view(now_ms) for address, server in self._servers.items() if address not in exclude)
        )

    def _now_ms(self) -> int:
        return round(self._clock_s() * 1000)


def _features(
    text: str,
    policy: str,
    model: str,
    conversation: Conversation | None,
    *,
    documents: int = 0,
    prompt_bytes: int | None = None,
    max_output_tokens: int = 0,
    capabilities: frozenset[str] = frozenset(),
    needs_logprobs: bool = False,
) -> Features:
    asked = parse_policy(policy)
    if asked.is_cache_only:
        raise MeshError(
            ErrorReason.ERROR_REASON_UNSUPPORTED,
            "there is no cache in this process",
            metadata={"feature": "cache_only"},
        )
    features = Features(
        scopes=_SCOPES,
        policy=asked,
        model=model,
        user_text=text,
        documents=documents,
        prompt_bytes=len(text.encode("utf-8", "replace")) if prompt_bytes is None else prompt_bytes,
        max_output_tokens=max_output_tokens,
        capabilities=capabilities,
        needs_logprobs=needs_logprobs,
    )
    if conversation is None:
        return features
    return features._replace(conversation_tier=conversation.tier, conversation_switches=conversation.switches)


def _word(kind: Any, value: int, prefix: str) -> str:
    name: str = kind.Name(value)
    return name.removeprefix(prefix).lower()


__all__ = ["Choice", "LocalNode", "LocalRouter"]
