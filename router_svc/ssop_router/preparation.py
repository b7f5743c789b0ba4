# cython: annotation_typing=False
"""From a request as it arrives to a job: checks, policy, schema, features, decision. No I/O.

`preparation.pxd` gives the types with which this very file is compiled.
"""

import random
import secrets
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, Final

from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.dispatch import REQUEST_ID_METADATA
from ssop_chassis.identity import Principal
from ssop_router.conversations import Conversations
from ssop_router.core.canary import draw
from ssop_router.core.cascade import open_cascade
from ssop_router.core.complexity import Complexity
from ssop_router.core.decision import Decision, DecisionSettings, Features, decide, weigh
from ssop_router.core.explanation import Explanation, explain
from ssop_router.core.policy import parse_policy
from ssop_router.core.score import Score
from ssop_router.core.transcript import Transcript
from ssop_router.features import read_features
from ssop_router.footprint import leave
from ssop_router.job import Intake, Job
from ssop_router.metrics import RouterMetrics
from ssop_router.nodes import Nodes
from ssop_router.profiles import Regimes
from ssop_router.recorder import Recorder, describe_decision, name_conversation
from ssop_router.schemas import SchemaCache
from ssop_router.scoring import Scorer
from ssop_router.settings import RouterSettings
from ssop_router.validation import check_request, read_prompt

SCHEMA_SCOPE: Final = "ssop"


class Preparation:
    """Makes jobs. `sign` makes the metadata that carries a principal to inner services."""

    def __init__(
        self,
        nodes: Nodes,
        settings: RouterSettings,
        regimes: Regimes,
        metrics: RouterMetrics,
        *,
        scorer: Scorer,
        recorder: Recorder,
        sign: Callable[[Principal], Mapping[str, str | bytes]],
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.scorer = scorer
        self._recorder = recorder
        self.schemas = SchemaCache(settings.schema_cache_size)
        self._nodes = nodes
        self._max_prompt_bytes = settings.max_prompt_bytes
        self._max_timeout_ms = settings.max_timeout_ms
        self._continue_max_bytes = settings.continue_max_bytes
        self._margin_s = settings.hop_margin_ms / 1000
        self._regimes = regimes
        self._metrics = metrics
        self._sign = sign
        self._clock_ms = clock_ms
        self._rng = rng
        self._conversations = Conversations(settings.conversations_size, settings.conversation_ttl_ms)
        self._cache_rule = settings.cache_first()
        self._cache_first = (-1, False)
        self._prefix = secrets.token_hex(10)
        self._named = secrets.randbits(40)

    def _read_settings(self) -> DecisionSettings:
        return self._regimes.now().decision

    def prepare(self, intake: Intake) -> Job:
        """Check a request and decide where it goes. Raises what GenerateRequest's rpc promises, up to the decision."""
        request, principal = intake.request, intake.principal
        prompt = request.prompt
        parts = read_prompt(prompt, max_prompt_bytes=self._max_prompt_bytes)
        check_request(request, parts)
        policy = parse_policy(request.policy or intake.policy)
        if parts.schema is not None:
            principal.require(SCHEMA_SCOPE)
        schema = self.schemas.of_prompt(prompt, parts)
        now_ms, conversation_id = self._clock_ms(), request.conversation_id
        conversation = self._conversations.find(principal.tenant, conversation_id, now_ms)
        request_id = request.request_id or self._name_request()
        features = read_features(
            request,
            parts,
            policy,
            principal.scopes,
            conversation,
            is_cache_first=self._is_cache_first(now_ms),
            canaries=draw(self._read_settings().canaries, principal.tenant, conversation_id or request_id),
        )
        started_ns = perf_counter_ns()
        decision = open_cascade(self._decide, features) if policy.is_cascade else self._decide(features)
        decision_us = (perf_counter_ns() - started_ns) // 1000
        limit_ms = min(self._max_timeout_ms, request.timeout_ms or self._max_timeout_ms)
        return Job(
            intake,
            request_id,
            parts,
            features,
            schema,
            decision,
            decision_us,
            {**self._sign(principal), REQUEST_ID_METADATA: request_id},
            intake.arrived_s + self._shorten(min(intake.timeout_s, limit_ms / 1000)),
            self.explain(features, decision)[0].lines if request.debug else (),
            self._describe(features, decision, intake) if self._recorder.is_on else None,
            Transcript(self._continue_max_bytes),
        )

    def _name_request(self) -> str:
        """An id that no other router gives, nor this one again; asking the kernel for each costs a system call."""
        self._named += 1
        return f"{self._prefix}{self._named:012x}"

    def _decide(self, features: Features) -> Decision:
        return decide(
            features,
            self._nodes.snapshot(),
            self._read_settings(),
            self._clock_ms(),
            self._rng,
            score_text=self.scorer,
        )

    def explain(self, features: Features, decision: Decision) -> tuple[Explanation, Complexity, Score | None]:
        """How a decision came about; the classifier is asked even where the decision did not need it."""
        now_ms, snapshot = self._clock_ms(), self._nodes.snapshot()
        complexity, score = weigh(features, snapshot, self._read_settings(), now_ms, self._rng, score_text=self.scorer)
        # What decided is shown as it was then.
        complexity, score = decision.complexity or complexity, decision.score or score
        found = explain(
            decision,
            features,
            snapshot,
            self._read_settings(),
            now_ms=now_ms,
            complexity=complexity,
            score=score,
        )
        return found, complexity, score

    def _describe(self, features: Features, decision: Decision, intake: Intake) -> dict[str, Any]:
        return describe_decision(
            decision,
            features,
            self._nodes.snapshot(),
            self._read_settings(),
            now_ms=self._clock_ms(),
            score_text=self.scorer,
            conversation=name_conversation(intake.principal.tenant, intake.request.conversation_id),
            with_text=self._recorder.with_text,
        )

    def remember(self, job: Job) -> None:
        """Count the decision of a job that is run, and keep its conversation's tier."""
        leave(job.decision, job.decision_us, self._metrics)
        name = job.request.conversation_id
        if self._conversations.advance(job.tenant, name, job.decision, self._clock_ms()):
            self._metrics.conversation_switches.labels(Tier.Name(job.decision.tier)).inc()

    def _is_cache_first(self, now_ms: int) -> bool:
        """Whether too much has failed. Only complete windows count, so that the answer holds for a whole window."""
        index = now_ms // self._cache_rule.window_ms
        if index != self._cache_first[0]:
            is_failing = self._cache_rule.applies(self._nodes.outcomes.windows(), now_ms)
            self._cache_first = (index, is_failing)
            self._metrics.cache_first.set(is_failing)
        return self._cache_first[1]

    def _shorten(self, timeout_s: float) -> float:
        """Time for a request, short of its call's, so that an error that says more than the deadline still arrives."""
        return timeout_s - min(self._margin_s, timeout_s / 10)
