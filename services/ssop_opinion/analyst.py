"""Posts to analyses through the mesh: one request a post, with a hint from the sentiment model beside the post.

A post is data. Its text goes into one line of the last message, without anything that a prompt is made of; tenant,
schema, policy and collections come from the configuration alone, so a hostile post can spoil its own record at most.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter

from ssop.v1 import mesh_pb2
from ssop.v1.content_pb2 import Message
from ssop_chassis.settings import SettingsError
from ssop_opinion.core.brands import Brand, describe
from ssop_opinion.core.post import Post
from ssop_opinion.core.prompt import Hint, PromptText, build_head, build_turn, pick_prompt
from ssop_opinion.core.record import Analysis, Verdict
from ssop_opinion.core.wording import even_out, find_language
from ssop_opinion.hint.model import HintError, HintModel, open_hint
from ssop_opinion.mesh_channel import channel_opener
from ssop_opinion.plans import Plan, make_plan
from ssop_opinion.ports import MeshAwayError, OnField
from ssop_opinion.prompting import PostSchema, post_schema
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.tenants import Tenant, read_secret
from ssop_opinion.wiring import Setup
from ssop_sdk import (
    AsyncSsopClient,
    AsyncStream,
    ContentUnsupported,
    ContextExceeded,
    MessageTooLarge,
    OutputIncomplete,
    OutputInvalid,
    RetryPolicy,
    SsopError,
)
from ssop_sdk.messages import read_messages
from ssop_sdk.request import GenerateOptions

Clock = Callable[[], float]

_RETRY_AFTER_S: Final = 1.0
_CONFIDENCE: Final = "confidence"
_LABEL: Final = "sentiment_label"
_EVENT: Final = "event_type"
# What a post itself is at fault of; everything else is the mesh's, the network's or the configuration's.
_POST_FAULTS: Final = (ContextExceeded, MessageTooLarge, ContentUnsupported)
_NO_LOGPROBS: Final = "LOGPROBS_UNSUPPORTED"
# What the mesh refuses to one tenant by its key, its limits or its file. Others are served.
_TENANT_FAULTS: Final = frozenset({
    "COLLECTION_UNKNOWN", "KEY_INVALID", "KEY_MISSING", "KEY_UNKNOWN", "MODEL_UNKNOWN", "POLICY_INVALID",
    "QUOTA_EXHAUSTED", "RATE_LIMITED", "SCOPE_MISSING",
})  # fmt: skip
_log = logging.getLogger(__name__)


class Judge(Protocol):
    """What says how a text sounds: the hint model."""

    def judge(self, text: str) -> Hint | None:
        """The hint for an evened-out text; None where nothing can be said."""
        ...


@dataclass(frozen=True, slots=True)
class _Question:
    tenant: str
    plan: Plan
    text: str
    brands: Sequence[Brand]
    hint: Hint | None


@dataclass(slots=True)
class _Answer:
    """An answer as it comes. `names` are the fields by the sequence numbers of their frames."""

    started_s: float
    verdict: Verdict = "ok"
    reason: str = ""
    first_field_ms: float | None = None
    names: dict[int, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    probabilities: Mapping[str, float] = field(default_factory=dict)

    def take(self, name: str, seq: int, now_s: float) -> None:
        """A field is there."""
        if self.first_field_ms is None:
            self.first_field_ms = (now_s - self.started_s) * 1000
        self.names[seq] = name


class Counts:
    """What the analyst counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.analyses = Counter(
            "ssop_opinion_analyses",
            "Analyses by verdict and what the cache did.",
            ["verdict", "cache"],
            registry=registry,
        )
        self.away = Counter(
            "ssop_opinion_mesh_away", "Calls that the mesh did not answer.", ["reason"], registry=registry
        )
        self.lookups = Counter(
            "ssop_opinion_brand_lookups",
            "Posts by whether they name a brand of their tenant; `rag`: the mesh was asked to search.",
            ["outcome"],
            registry=registry,
        )
        self.hints = Counter(
            "ssop_opinion_hints", "Hints by label; `none`: the model said nothing.", ["label"], registry=registry
        )
        self.disagreements = Counter(
            "ssop_opinion_hint_disagreements",
            "Records whose label is not that of the hint.",
            ["hint"],
            registry=registry,
        )
        self.events = Counter(
            "ssop_opinion_event_hints",
            "Hints of an event type by that type and whether the record has it; `none`: no type was clear.",
            ["event", "outcome"],
            registry=registry,
        )


class MeshAnalyst:
    """The Analyst. Safe for many posts at once; who calls bounds them."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        clients: Mapping[str, AsyncSsopClient],
        *,
        hint: Judge | None,
        counts: Counts,
        timeout_s: float,
        max_output_tokens: int,
        max_degraded_level: int,
        has_probabilities: bool,
        clock: Clock = time.monotonic,
    ) -> None:
        """`plans` and `clients` are by tenant. `hint` None goes without."""
        self._plans = plans
        self._clients = clients
        self._hint = hint
        self._counts = counts
        self._timeout_s = timeout_s
        self._max_output_tokens = max_output_tokens
        self._max_degraded_level = max_degraded_level
        self._has_probabilities = has_probabilities
        self._clock = clock
        self._schema: PostSchema = post_schema()
        self._heads: dict[tuple[int, bool, bool], Sequence[Message]] = {}

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        """See `ports.Analyst`."""
        plan = self._plans.get(post.tenant)
        if plan is None:
            return self._failed("TENANT_UNKNOWN")
        text = even_out(post.text, plan.brands.handles)
        if not text:
            return self._failed("TEXT_EMPTY")
        brands = plan.brands.find(text)
        self._counts.lookups.labels("hit" if brands else "rag" if plan.collections else "miss").inc()
        question = _Question(post.tenant, plan, text, brands, self._judge(text))
        try:
            return await self._ask(question, on_field)
        except SsopError as error:
            if error.reason != _NO_LOGPROBS or not self._has_probabilities:
                raise self._away(error) from error
        self._has_probabilities = False
        _log.warning("no node gives log-probabilities: records have none from here on, and `confidence` is the hint's")
        try:
            return await self._ask(question, on_field)
        except SsopError as error:
            raise self._away(error) from error

    def _judge(self, text: str) -> Hint | None:
        hint = self._hint.judge(text) if self._hint is not None else None
        self._counts.hints.labels(hint.label if hint is not None else "none").inc()
        return hint

    async def _ask(self, question: _Question, on_field: OnField) -> Analysis:
        """One request. Raises SsopError for what is not the post's fault."""
        answer = _Answer(self._clock())
        async with self._generate(question) as stream:
            try:
                async for frame in stream:
                    for name, value in frame.delta.items():
                        answer.take(name, frame.seq, self._clock())
                        # The model's own word about its confidence is always the same; ours comes at the end.
                        if name != _CONFIDENCE:
                            on_field(name, value)
            except OutputInvalid as error:
                answer.verdict, answer.reason = "invalid", f"{error.rule} at {error.pointer or '/'}"
            except OutputIncomplete as error:
                answer.verdict, answer.reason = "incomplete", error.incomplete_reason
            except _POST_FAULTS as error:
                if error.reason == _NO_LOGPROBS:
                    raise
                answer.verdict, answer.reason = "failed", error.reason
        answer.probabilities = read_probabilities(stream.logprobs, answer.names)
        answer.fields = dict(stream.fields)
        if _CONFIDENCE in answer.fields:
            label = str(answer.fields.get(_LABEL, ""))
            confidence = weigh(label, answer.probabilities.get(_LABEL), question.hint, answer.fields[_CONFIDENCE])
            answer.fields[_CONFIDENCE] = confidence
            on_field(_CONFIDENCE, confidence)
        return self._finish(question, answer, stream)

    def _generate(self, question: _Question) -> AsyncStream[Any]:
        plan, has_brand, hint = question.plan, bool(question.brands), question.hint
        prompt = pick_prompt(plan.prompts, find_language(question.text))
        turn = build_turn(prompt, question.text, brands=describe(question.brands), hint=hint)
        messages: list[Any] = [*self._head(prompt, hint), turn]
        options: GenerateOptions = {
            "policy": plan.find_policy(has_brand=has_brand),
            "max_output_tokens": self._max_output_tokens,
            "max_degraded_level": self._max_degraded_level,
            "allow_degraded": True,
            "logprobs": self._has_probabilities,
            "timeout_s": self._timeout_s,
        }
        # What only some tenants and posts ask for: each option that is named makes the request larger.
        if plan.collections and not has_brand:
            options["collections"] = plan.collections
            options["rag_prefetch_ratio"] = plan.rag_prefetch_ratio
        if plan.allows_similar:
            options["allow_similar_cache"] = True
        return self._clients[question.tenant].generate(messages, **options)

    def _head(self, prompt: PromptText, hint: Hint | None) -> Sequence[Message]:
        """What stands before each post, made once: with examples it is most of the request."""
        has_event = hint is not None and bool(hint.event)
        # A prompt lives as long as the plans do: no other can come to have its id.
        key = (id(prompt), hint is not None, has_event)
        head = self._heads.get(key)
        if head is None:
            head = read_messages(build_head(prompt, has_hint=hint is not None, has_event=has_event))
            self._heads[key] = head
        return head

    def _finish(self, question: _Question, answer: _Answer, stream: AsyncStream[Any]) -> Analysis:
        decision, usage, status, hint = stream.decision, stream.usage, stream.status, question.hint
        cache = _word(mesh_pb2.CacheReason, decision.cache_reason, "CACHE_REASON_") if decision is not None else ""
        self._counts.analyses.labels(answer.verdict, cache or "none").inc()
        event = hint.event if hint is not None else ""
        if answer.verdict == "ok" and hint is not None:
            if answer.fields.get(_LABEL) != hint.label:
                self._counts.disagreements.labels(hint.label).inc()
            outcome = "kept" if answer.fields.get(_EVENT) == event else "changed"
            self._counts.events.labels(event or "none", outcome if event else "").inc()
        return Analysis(
            fields=answer.fields,
            verdict=answer.verdict,
            reason=answer.reason,
            schema_id=self._schema.id,
            schema_hash=self._schema.hash,
            request_id=stream.request_id,
            tier=_word(mesh_pb2.Tier, decision.tier, "TIER_") if decision is not None else "",
            model=decision.model if decision is not None else "",
            cache=cache,
            degraded_level=status.degraded_level if status is not None else 0,
            first_field_ms=answer.first_field_ms,
            total_ms=(self._clock() - answer.started_s) * 1000,
            hint=round(hint.valence, 4) if hint is not None else None,
            event_hint=event,
            probabilities=answer.probabilities,
            input_tokens=usage.input_tokens if usage is not None else 0,
            output_tokens=usage.output_tokens if usage is not None else 0,
            passages=len(status.passages) if status is not None else 0,
            sources=_sources(status) if status is not None else (),
        )

    def _failed(self, reason: str) -> Analysis:
        self._counts.analyses.labels("failed", "none").inc()
        return Analysis({}, "failed", reason, self._schema.id, self._schema.hash)

    def _away(self, error: SsopError) -> MeshAwayError:
        self._counts.away.labels(error.reason).inc()
        wait_s = error.retry_after_ms / 1000 if error.retry_after_ms is not None else _RETRY_AFTER_S
        is_of_tenant = error.reason in _TENANT_FAULTS
        return MeshAwayError(f"the mesh did not answer: {error.reason}", wait_s, is_of_tenant=is_of_tenant)


def read_probabilities(entries: Sequence[mesh_pb2.FieldLogprob], names: Mapping[int, str]) -> dict[str, float]:
    """Probabilities of the fields' values after the grammar's mask, from 0 to 1, by field."""
    return {
        names[entry.seq]: round(math.exp(min(0.0, entry.sum_logprob)), 4) for entry in entries if entry.seq in names
    }


def weigh(label: str, probability: float | None, hint: Hint | None, stated: Any) -> float:
    """The confidence of a record: how likely its label is to the model, and to the hint, multiplied; two digits.

    Without either it is what the model wrote, which is worth little.
    """
    if probability is None and hint is None:
        return float(stated)
    by_hint = hint.probability_of(label) if hint is not None else 1.0
    return round(min(1.0, by_hint * (1.0 if probability is None else probability)), 2)


def _sources(status: mesh_pb2.DeliveryStatus) -> Sequence[str]:
    return tuple(dict.fromkeys(f"{one.collection}/{one.document_id}" for one in status.passages))


def _word(kind: Any, value: int, prefix: str) -> str:
    try:
        name = str(kind.Name(value))
    except ValueError:
        return "unknown"
    return "" if name.endswith("_UNSPECIFIED") else name.removeprefix(prefix).lower()


def _open_hint(settings: OpinionSettings) -> HintModel | None:
    if not settings.has_hint:
        return None
    try:
        return open_hint(settings.hint_file)
    except HintError as error:
        raise SettingsError(f"the hint can't be used: {error}; has_hint = false goes without") from error


@asynccontextmanager
async def open_analyst(setup: Setup) -> AsyncIterator[MeshAnalyst]:
    """The Analyst that the settings ask for. Raises SettingsError."""
    settings = setup.settings
    plans: dict[str, Plan] = {}
    clients: dict[str, AsyncSsopClient] = {}
    timeout_s = settings.analysis_timeout_ms / 1000
    open_channel = channel_opener(setup.transport)
    async with AsyncExitStack() as stack:

        async def admit(tenants: Mapping[str, Tenant]) -> Callable[[], None]:
            made = {name: make_plan(tenant) for name, tenant in tenants.items()}
            keys = {name: read_secret(tenant.api_key_file) for name, tenant in tenants.items()}

            def let_in() -> None:
                for name, key in keys.items():
                    client = AsyncSsopClient(
                        api_key=key,
                        target=settings.router_address,
                        output_schema=dict(post_schema().document),
                        timeout_s=timeout_s,
                        # The queue tries again, and knows how long a post has waited.
                        retry=RetryPolicy(max_retries=1),
                        open_channel=open_channel,
                    )
                    stack.push_async_exit(client)
                    clients[name] = client
                plans.update(made)

            return let_in

        (await admit(setup.tenants))()
        setup.admits.append(admit)
        hint = await asyncio.to_thread(_open_hint, settings)
        yield MeshAnalyst(
            plans,
            clients,
            hint=hint,
            counts=Counts(setup.registry),
            timeout_s=timeout_s,
            max_output_tokens=settings.max_output_tokens,
            max_degraded_level=settings.max_degraded_level,
            has_probabilities=settings.has_probabilities,
        )
