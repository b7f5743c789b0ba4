"""From a request as it arrives to a job: checks, policy, schema, features, decision. No I/O."""

import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_chassis.dispatch import REQUEST_ID_METADATA
from ssop_chassis.identity import Principal
from ssop_router.core.decision import Decision, DecisionSettings, decide
from ssop_router.core.policy import parse_policy
from ssop_router.features import read_features
from ssop_router.job import Intake, Job
from ssop_router.metrics import RouterMetrics
from ssop_router.nodes import Nodes
from ssop_router.schemas import SchemaCache
from ssop_router.settings import RouterSettings
from ssop_router.validation import check_request

SCHEMA_SCOPE: Final = "ssop"


class Preparation:
    """Makes jobs. `sign` makes the metadata that carries a principal to inner services."""

    def __init__(
        self,
        nodes: Nodes,
        settings: RouterSettings,
        decision: DecisionSettings,
        metrics: RouterMetrics,
        *,
        sign: Callable[[Principal], Mapping[str, str | bytes]],
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.schemas = SchemaCache(settings.schema_cache_size)
        self._nodes = nodes
        self._settings = settings
        self._decision = decision
        self._metrics = metrics
        self._sign = sign
        self._clock_ms = clock_ms
        self._rng = rng
        self._conversations: OrderedDict[tuple[str, str], Tier.ValueType] = OrderedDict()

    def prepare(self, intake: Intake) -> Job:
        """Check a request and decide where it goes. Raises what GenerateRequest's rpc promises, up to the decision."""
        request, principal = intake.request, intake.principal
        check_request(request, max_prompt_bytes=self._settings.max_prompt_bytes)
        policy = parse_policy(request.policy or intake.policy)
        if request.prompt.HasField("output_schema"):
            principal.require(SCHEMA_SCOPE)
        schema = self.schemas.of_prompt(request.prompt)
        conversation = (principal.tenant, request.conversation_id)
        pinned = self._conversations.get(conversation, Tier.TIER_UNSPECIFIED)
        features = read_features(request, policy, principal.scopes, pinned)
        started_ns = time.perf_counter_ns()
        decision = decide(features, self._nodes.snapshot(), self._decision, self._clock_ms(), self._rng)
        decision_us = (time.perf_counter_ns() - started_ns) // 1000
        request_id = request.request_id or secrets.token_hex(16)
        limit_ms = min(self._settings.max_timeout_ms, request.timeout_ms or self._settings.max_timeout_ms)
        return Job(
            intake=intake,
            request_id=request_id,
            features=features,
            schema=schema,
            decision=decision,
            decision_us=decision_us,
            inner_metadata={**self._sign(principal), REQUEST_ID_METADATA: request_id},
            started_s=intake.arrived_s,
            deadline_s=intake.arrived_s + self._shorten(min(intake.timeout_s, limit_ms / 1000)),
            cache_reason=decision.cache_reason,
            retrieval_reason=decision.retrieval_reason,
        )

    def remember(self, job: Job) -> None:
        """Count the decision of a job that is run, and keep its conversation's tier."""
        decision = job.decision
        self._metrics.decision_seconds.observe(job.decision_us / 1_000_000)
        self._metrics.decisions.labels(Tier.Name(decision.tier), TierReason.Name(decision.tier_reason)).inc()
        if job.request.conversation_id:
            self._pin((job.tenant, job.request.conversation_id), decision)

    def _shorten(self, timeout_s: float) -> float:
        """Time for a request, short of its call's, so that an error that says more than the deadline still arrives."""
        return timeout_s - min(self._settings.hop_margin_ms / 1000, timeout_s / 10)

    def _pin(self, conversation: tuple[str, str], decision: Decision) -> None:
        if decision.tier_reason != TierReason.TIER_REASON_OTHER_UNAVAILABLE:
            self._conversations[conversation] = decision.tier
            self._conversations.move_to_end(conversation)
        if len(self._conversations) > self._settings.conversations_size:
            self._conversations.popitem(last=False)
