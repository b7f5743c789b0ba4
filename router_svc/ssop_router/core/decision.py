"""Which tier and which node serve a request, and why. Pure: snapshot, time and randomness are passed in.

Hard filters come first (scope, state, context, capability); preferences only choose among what is left. What is not
known about a node filters nothing: it makes the node less attractive than one that is known to have room.
"""

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import CacheReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.policy import WORD_OF_TIER, Policy
from ssop_router.core.rules import READ_CHARS, Rule
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot

TIERS: Final = (Tier.TIER_LITE, Tier.TIER_FULL)
# Looking a name up in an enum of protobuf costs as much as the rest of a filter.
_READY: Final = ModelState.MODEL_STATE_READY
_BOTH_TIERS: Final = frozenset(TIERS)
# A byte-pair tokenizer rarely makes tokens longer than this on average, so bytes over it is a lower bound; only the
# node knows the number of tokens.
_MOST_BYTES_PER_TOKEN: Final = 8
# How much busier than its numbers a node counts, in full loads, for what is not known about it.
_STALE_PENALTY: Final = 1.0
_UNSEEN_PENALTY: Final = 2.0
_LOW_MEMORY_PENALTY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Features:
    """What the decision reads of a request. `prompt_bytes` counts all text; `user_text` is the last user message."""

    scopes: frozenset[str]
    policy: Policy = field(default_factory=Policy)
    model: str = ""
    user_text: str = ""
    documents: int = 0
    prompt_bytes: int = 0
    max_output_tokens: int = 0
    capabilities: frozenset[str] = field(default_factory=frozenset)
    needs_logprobs: bool = False
    has_schema: bool = False
    temperature: float = 0.0
    is_sampled_cacheable: bool = False
    names_collections: bool = False
    conversation_tier: Tier.ValueType = Tier.TIER_UNSPECIFIED

    @property
    def least_input_tokens(self) -> int:
        """A number of tokens that no tokenizer makes the prompt shorter than."""
        return self.prompt_bytes // _MOST_BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """What the operator says: names of models, the default tier, the rules, and when a status is old."""

    model_tiers: Mapping[str, Tier.ValueType]
    default_tier: Tier.ValueType
    rules: Sequence[Rule] = ()
    status_stale_ms: int = 5_000
    low_memory_ratio: float = 0.02
    max_attempts: int = 3


class Candidate(NamedTuple):
    """A node and a model on it that may serve. `load` is in full loads; `model` "" is the node's first."""

    address: str
    node: str
    model: str
    load: float
    is_stale: bool
    is_shared_model: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes and why. `candidate` is None while no node of the tier can serve."""

    tier: Tier.ValueType
    tier_reason: TierReason.ValueType
    candidate: Candidate | None
    node_reason: NodeReason.ValueType
    cache_reason: CacheReason.ValueType
    retrieval_reason: RetrievalReason.ValueType
    explanation: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sieve:
    """What the filters left of one tier, and what they took out."""

    candidates: tuple[Candidate, ...]
    out: Sequence[tuple[str, str]]
    limit_tokens: int


_Preference = tuple[Tier.ValueType, TierReason.ValueType, str]

_CONTEXT: Final = "context"
_CAPABILITY: Final = "capability"
_LOGPROBS: Final = "logprobs"
_STATE: Final = "state"


def decide(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    now_ms: int,
    rng: random.Random,
) -> Decision:
    """Choose tier and node. `now_ms` is on the clock of the snapshot.

    Raises MODEL_UNKNOWN, POLICY_INVALID, SCOPE_MISSING, UNSUPPORTED, and CONTEXT_EXCEEDED, CONTENT_UNSUPPORTED or
    LOGPROBS_UNSUPPORTED where every node that is known refuses for that reason.
    """
    allowed = _allowed_tiers(features, settings)

    def sift(tier: Tier.ValueType) -> _Sieve:
        return _sift(features, snapshot, settings, tier, now_ms=now_ms)

    (tier, reason, why), sieve = _choose_tier(features, settings, allowed, sift)
    lines = [f"tier {WORD_OF_TIER[tier]}: {why}"]
    lines += [f"node {name} is out: {fault}" for name, fault in sieve.out]
    candidate, node_reason = pick(sieve.candidates, rng)
    if candidate is None:
        _refuse_if_never(features, sieve)
        lines.append("no node of the tier can serve now")
    else:
        lines.append(_describe(candidate, len(sieve.candidates)))
    cache_reason, cache_line = _plan_cache(features)
    retrieval_reason, retrieval_line = _plan_retrieval(features)
    return Decision(
        tier,
        reason,
        candidate,
        node_reason,
        cache_reason,
        retrieval_reason,
        (*lines, cache_line, retrieval_line),
    )


def find_candidates(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    tier: Tier.ValueType,
    *,
    now_ms: int,
    failed: Set[str] = frozenset(),
) -> tuple[Candidate, ...]:
    """The nodes of a tier that pass every filter, without the addresses in `failed`."""
    return _sift(features, snapshot, settings, tier, now_ms=now_ms, failed=failed).candidates


def pick(candidates: Sequence[Candidate], rng: random.Random) -> tuple[Candidate | None, NodeReason.ValueType]:
    """The candidate with the most head-room; `rng` breaks ties."""
    if not candidates:
        return None, NodeReason.NODE_REASON_UNSPECIFIED
    least = min(candidate.load for candidate in candidates)
    chosen = rng.choice([candidate for candidate in candidates if candidate.load == least])
    if len(candidates) == 1:
        return chosen, NodeReason.NODE_REASON_ONLY_ONE
    if all(candidate.is_stale for candidate in candidates):
        return chosen, NodeReason.NODE_REASON_STATUS_STALE
    return chosen, NodeReason.NODE_REASON_HEADROOM


def _allowed_tiers(features: Features, settings: DecisionSettings) -> Mapping[Tier.ValueType, TierReason.ValueType]:
    """The tiers that the request may go to, with the reason where only one is left by demand."""
    policy = features.policy
    if policy.is_cascade:
        raise MeshError(
            ErrorReason.ERROR_REASON_UNSUPPORTED,
            "the policy 'cascade' is not served by this version",
            metadata={"feature": "cascade"},
        )
    named = Tier.TIER_UNSPECIFIED
    if features.model:
        if features.model not in settings.model_tiers:
            # The name comes from the caller, so the error repeats no more than its head.
            raise MeshError(
                ErrorReason.ERROR_REASON_MODEL_UNKNOWN,
                "the model is unknown; ListModels names those that the key may use",
                metadata={"model": features.model[:64]},
            )
        named = settings.model_tiers[features.model]
    if policy.tier and named and policy.tier != named:
        raise MeshError(
            ErrorReason.ERROR_REASON_POLICY_INVALID,
            f"the policy forces '{WORD_OF_TIER[policy.tier]}' and the model is of '{WORD_OF_TIER[named]}'",
            fields=[("policy", "contradicts the model")],
        )
    if policy.tier:
        _require_tier(features, policy.tier)
        return {policy.tier: TierReason.TIER_REASON_POLICY_FORCED}
    if named:
        _require_tier(features, named)
        return {named: TierReason.TIER_REASON_MODEL_NAMED}
    tiers = [tier for tier in TIERS if WORD_OF_TIER[tier] in features.scopes]
    if not tiers:
        _require_tier(features, settings.default_tier)
    if len(tiers) == 1:
        return {tiers[0]: TierReason.TIER_REASON_SCOPE}
    return dict.fromkeys(tiers, TierReason.TIER_REASON_UNSPECIFIED)


def _require_tier(features: Features, tier: Tier.ValueType) -> None:
    scope = WORD_OF_TIER[tier]
    if scope not in features.scopes:
        raise MeshError(
            ErrorReason.ERROR_REASON_SCOPE_MISSING,
            f"the key lacks the scope '{scope}'",
            metadata={"scope": scope},
        )


def _choose_tier(
    features: Features,
    settings: DecisionSettings,
    allowed: Mapping[Tier.ValueType, TierReason.ValueType],
    sift: Callable[[Tier.ValueType], _Sieve],
) -> tuple[_Preference, _Sieve]:
    if len(allowed) == 1:
        tier, reason = next(iter(allowed.items()))
        return (tier, reason, f"the only one allowed ({TierReason.Name(reason)})"), sift(tier)
    wanted, reason, why = next(found for prefer in _PREFERENCES if (found := prefer(features, settings)) is not None)
    sieve = sift(wanted)
    if sieve.candidates:
        return (wanted, reason, why), sieve
    for other in allowed:
        if other != wanted and (instead := sift(other)).candidates:
            return (other, _reason_of_loss(sieve), f"no node of '{WORD_OF_TIER[wanted]}' fits"), instead
    return (wanted, reason, why), sieve


def _by_conversation(features: Features, _: DecisionSettings) -> _Preference | None:
    tier = features.conversation_tier
    if not tier:
        return None
    return tier, TierReason.TIER_REASON_CONVERSATION_PIN, "the conversation keeps its tier"


def _by_rule(features: Features, settings: DecisionSettings) -> _Preference | None:
    text = features.user_text[:READ_CHARS].lower()
    for rule in settings.rules:
        if rule.applies(text, len(features.user_text), features.documents):
            return rule.tier, rule.reason, f"a rule spoke ({TierReason.Name(rule.reason)})"
    return None


def _by_default(_: Features, settings: DecisionSettings) -> _Preference | None:
    return settings.default_tier, TierReason.TIER_REASON_DEFAULT, "no rule spoke: the default"


# The first that speaks decides; the last always speaks.
_PREFERENCES: Final[Sequence[Callable[[Features, DecisionSettings], _Preference | None]]] = (
    _by_conversation,
    _by_rule,
    _by_default,
)


def _reason_of_loss(sieve: _Sieve) -> TierReason.ValueType:
    faults = {fault for _, fault in sieve.out}
    if faults == {_CONTEXT}:
        return TierReason.TIER_REASON_CONTEXT_FIT
    if faults and faults <= {_CAPABILITY, _LOGPROBS}:
        return TierReason.TIER_REASON_CAPABILITY
    return TierReason.TIER_REASON_OTHER_UNAVAILABLE


def _sift(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    tier: Tier.ValueType,
    *,
    now_ms: int,
    failed: Set[str] = frozenset(),
) -> _Sieve:
    candidates: list[Candidate] = []
    out: list[tuple[str, str]] = []
    limit_tokens = 0
    for node in snapshot.nodes:
        if node.address in failed:
            continue
        if node.is_ejected:
            out.append((node.name, "ejected"))
            continue
        if node.seen_at_ms is None:
            if not node.expected_tiers or tier in node.expected_tiers:
                load = node.in_flight + _UNSEEN_PENALTY
                candidates.append(Candidate(node.address, node.name, "", load, True, False))
            continue
        models = [model for model in node.models if tier in model.tiers]
        fitting = [model for model in models if not _fault(features, model)]
        if fitting:
            candidates.append(_rate(node, fitting, settings, now_ms))
        elif models:
            out.append((node.name, _fault(features, models[0])))
            limit_tokens = max(limit_tokens, *(model.context_tokens for model in models))
    return _Sieve(tuple(candidates), out, limit_tokens)


def _fault(features: Features, model: ModelView) -> str:
    if model.state != _READY:
        return _STATE
    needed = features.least_input_tokens + features.max_output_tokens
    if 0 < model.context_tokens < needed:
        return _CONTEXT
    if not features.capabilities <= model.capabilities:
        return _CAPABILITY
    if features.needs_logprobs and not model.has_logprobs:
        return _LOGPROBS
    return ""


def _rate(node: NodeView, models: Sequence[ModelView], settings: DecisionSettings, now_ms: int) -> Candidate:
    age_ms = node.age_ms(now_ms)
    is_stale = not node.is_connected or age_ms is None or age_ms > settings.status_stale_ms
    model = models[0]
    load = _load(node, model, is_stale=is_stale)
    for other in models[1:]:
        if (less := _load(node, other, is_stale=is_stale)) < load:
            model, load = other, less
    if is_stale:
        load += _STALE_PENALTY
    if node.memory_free_ratio is not None and node.memory_free_ratio < settings.low_memory_ratio:
        load += _LOW_MEMORY_PENALTY
    return Candidate(node.address, node.name, model.name, load, is_stale, model.tiers >= _BOTH_TIERS)


def _load(node: NodeView, model: ModelView, *, is_stale: bool) -> float:
    """Requests for each slot. What the node says is late, what this router counts is partial: the larger is nearer."""
    said = 0.0 if is_stale else model.slots_busy + model.queue_length
    return max(said, float(node.in_flight)) / max(1, model.slots_total)


def _refuse_if_never(features: Features, sieve: _Sieve) -> None:
    """Raise where waiting would not help: every node refuses what the request itself asks for."""
    faults = {fault for _, fault in sieve.out}
    if faults == {_CONTEXT}:
        raise MeshError(
            ErrorReason.ERROR_REASON_CONTEXT_EXCEEDED,
            "the prompt and the answer do not fit any model that may serve them",
            metadata={
                "limit_tokens": str(sieve.limit_tokens),
                "input_tokens": str(features.least_input_tokens),
            },
        )
    if faults == {_CAPABILITY}:
        raise MeshError(
            ErrorReason.ERROR_REASON_CONTENT_UNSUPPORTED,
            "no model that may serve the request can take its parts or tools",
            metadata={"needs": ",".join(sorted(features.capabilities))},
        )
    if faults == {_LOGPROBS}:
        raise MeshError(
            ErrorReason.ERROR_REASON_LOGPROBS_UNSUPPORTED,
            "no model that may serve the request gives log-probabilities",
        )


def _describe(candidate: Candidate, of: int) -> str:
    certainty = "status unknown or old" if candidate.is_stale else "status fresh"
    return f"node {candidate.node}: load {candidate.load:.2f}, {certainty}, 1 of {of}"


def _plan_cache(features: Features) -> tuple[CacheReason.ValueType, str]:
    """UNSPECIFIED where the cache is to be asked, or cannot hold such an answer."""
    if features.policy.is_cache_off:
        return CacheReason.CACHE_REASON_POLICY_OFF, "cache: off by policy"
    if features.temperature > 0 and not features.is_sampled_cacheable:
        return CacheReason.CACHE_REASON_TEMPERATURE, "cache: the temperature is above 0"
    if features.needs_logprobs:
        return CacheReason.CACHE_REASON_UNSPECIFIED, "cache: log-probabilities are not stored"
    return CacheReason.CACHE_REASON_UNSPECIFIED, "cache: to be asked"


def is_cacheable(features: Features) -> bool:
    """Whether the answer may be looked up and stored."""
    reason, _ = _plan_cache(features)
    return reason == CacheReason.CACHE_REASON_UNSPECIFIED and not features.needs_logprobs


def _plan_retrieval(features: Features) -> tuple[RetrievalReason.ValueType, str]:
    """UNSPECIFIED where passages are to be looked for. Raises SCOPE_MISSING."""
    if features.policy.is_rag_off:
        return RetrievalReason.RETRIEVAL_REASON_POLICY_OFF, "retrieval: off by policy"
    if "rag" in features.scopes:
        return RetrievalReason.RETRIEVAL_REASON_UNSPECIFIED, "retrieval: where there are collections"
    if features.names_collections:
        raise MeshError(
            ErrorReason.ERROR_REASON_SCOPE_MISSING,
            "the key lacks the scope 'rag'",
            metadata={"scope": "rag"},
        )
    return RetrievalReason.RETRIEVAL_REASON_SCOPE, "retrieval: the key lacks the scope 'rag'"
