# cython: annotation_typing=False
"""Which tier and which node serve a request, and why. Pure: snapshot, time, scores and randomness are passed in.

Hard filters come first (scope, state, context, capability); preferences only choose among what is left. They are
asked in this order: what the caller forces, the conversation's tier, the rules, the score, the default. What is not
known about a node filters nothing: it makes the node less attractive than one that is known to have room.

`decision.pxd` gives the types with which this very file is compiled.
"""

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import CacheReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.candidate import Candidate, Choice
from ssop_router.core.choice import choose_both, choose_node
from ssop_router.core.complexity import Complexity
from ssop_router.core.conversation import MAX_SWITCHES
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.routing import has_tier, name_loss, refuse_if_never
from ssop_router.core.rules import Rule, make_excerpt
from ssop_router.core.score import Score, read_tier
from ssop_router.core.snapshot import Snapshot
from ssop_router.core.tuples import make

__all__ = [
    "Candidate",
    "Decision",
    "DecisionSettings",
    "Features",
    "Scene",
    "ScoreText",
    "Wish",
    "allowed_tiers",
    "decide",
    "is_cacheable",
    "prefer",
    "weigh",
]

# Looking a name up in an enum of protobuf costs as much as a rule.
_LITE: Final = Tier.TIER_LITE
_FULL: Final = Tier.TIER_FULL
_ANY: Final = TierReason.TIER_REASON_UNSPECIFIED
_FORCED: Final = TierReason.TIER_REASON_POLICY_FORCED
_NAMED: Final = TierReason.TIER_REASON_MODEL_NAMED
_SCOPE: Final = TierReason.TIER_REASON_SCOPE
_DEFAULT: Final = TierReason.TIER_REASON_DEFAULT
_UNAVAILABLE: Final = TierReason.TIER_REASON_OTHER_UNAVAILABLE
_PINNED: Final = TierReason.TIER_REASON_CONVERSATION_PIN
_UNCERTAIN: Final = TierReason.TIER_REASON_UNCERTAIN
_CACHE_ASKED: Final = CacheReason.CACHE_REASON_UNSPECIFIED
_CACHE_OFF: Final = CacheReason.CACHE_REASON_POLICY_OFF
_TOO_WARM: Final = CacheReason.CACHE_REASON_TEMPERATURE
_RAG_ASKED: Final = RetrievalReason.RETRIEVAL_REASON_UNSPECIFIED
_RAG_OFF: Final = RetrievalReason.RETRIEVAL_REASON_POLICY_OFF
_NO_RAG_SCOPE: Final = RetrievalReason.RETRIEVAL_REASON_SCOPE
_NO_TIER: Final = Tier.TIER_UNSPECIFIED
TIERS: Final = (_LITE, _FULL)
_BOTH_SCOPES: Final = frozenset(WORD_OF_TIER.values())
_EITHER: Final[Mapping[Tier.ValueType, TierReason.ValueType]] = MappingProxyType(dict.fromkeys(TIERS, _ANY))
ScoreText = Callable[[str], Complexity]
"""Scores the user's text; deterministic, and called only where the score is needed."""
_OFF: Final = Complexity(abstention="off")


def score_nothing(_: str) -> Complexity:
    """Stands where there is no classifier."""
    return _OFF


class Decision(NamedTuple):
    """Where a request goes and why. `candidate` is None while no node of the tier can serve.

    `complexity` is None where the classifier was not asked, `score` where there is none. `weak_signals` names what
    was missing or old, as `signal:weakness`.
    """

    tier: Tier.ValueType
    tier_reason: TierReason.ValueType
    candidate: Candidate | None
    node_reason: NodeReason.ValueType
    cache_reason: CacheReason.ValueType
    retrieval_reason: RetrievalReason.ValueType
    rule: Rule | None = None
    complexity: Complexity | None = None
    score: Score | None = None
    weak_signals: tuple[str, ...] = ()
    is_cache_first: bool = False

    @property
    def has_prefetch(self) -> bool:
        """Retrieval is not to wait for admission."""
        return self.rule is not None and self.rule.has_prefetch


class Wish(NamedTuple):
    """The tier that a preference asks for, and what it read."""

    tier: Tier.ValueType
    reason: TierReason.ValueType
    rule: Rule | None = None
    complexity: Complexity | None = None
    score: Score | None = None


class Scene(Protocol):
    """What preferences look at: a request that has just come, or one of a log."""

    @property
    def features(self) -> Features:
        """The request."""
        ...

    @property
    def settings(self) -> DecisionSettings:
        """What the operator says."""
        ...

    def find_rule(self) -> Rule | None:
        """The first rule that speaks."""
        ...

    def weigh(self) -> tuple[Complexity, Score | None]:
        """The complexity of the text, and the score where there is one."""
        ...


class _Live:
    """A request that has just come; each tier's node is chosen once."""

    __slots__ = ("_chosen", "features", "now_ms", "rng", "score_text", "settings", "snapshot")

    def __init__(
        self,
        features: Features,
        snapshot: Snapshot,
        settings: DecisionSettings,
        now_ms: int,
        *,
        rng: random.Random,
        score_text: ScoreText,
    ) -> None:
        self.features = features
        self.snapshot = snapshot
        self.settings = settings
        self.now_ms = now_ms
        self.rng = rng
        self.score_text = score_text
        self._chosen: dict[Tier.ValueType, Choice] = {}

    def choose(self, tier: Tier.ValueType) -> Choice:
        """The node of a tier."""
        chosen = self._chosen.get(tier)
        if chosen is None:
            chosen = self._chosen[tier] = choose_node(
                self.features, self.snapshot, self.settings, tier, now_ms=self.now_ms, rng=self.rng
            )
        return chosen

    def find_rule(self) -> Rule | None:
        """See Scene."""
        return find_rule(self.features, self.settings)

    def weigh(self) -> tuple[Complexity, Score | None]:
        """See Scene."""
        complexity = self.score_text(self.features.user_text)
        if complexity.score is None:
            return complexity, None
        chosen = self._chosen
        chosen[_LITE], chosen[_FULL], score = choose_both(
            self.features, self.snapshot, self.settings, now_ms=self.now_ms, rng=self.rng, complexity=complexity
        )
        return complexity, score


def decide(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    now_ms: int,
    rng: random.Random,
    *,
    score_text: ScoreText = score_nothing,
) -> Decision:
    """Choose tier and node. `now_ms` is on the clock of the snapshot.

    Raises MODEL_UNKNOWN, POLICY_INVALID, SCOPE_MISSING, UNSUPPORTED, and CONTEXT_EXCEEDED, CONTENT_UNSUPPORTED or
    LOGPROBS_UNSUPPORTED where every node that is known refuses for that reason.
    """
    allowed = allowed_tiers(features, settings)
    scene = _Live(features, snapshot, settings, now_ms, rng=rng, score_text=score_text)
    wish = Wish(*next(iter(allowed.items()))) if len(allowed) == 1 else prefer(scene)
    tier, reason, rule, complexity, score = wish
    candidate, node_reason = scene.choose(tier)
    if candidate is None:
        for other in allowed:
            if other == tier or scene.choose(other)[0] is None:
                continue
            loss = name_loss(features, snapshot, tier)
            if loss == _UNAVAILABLE and other == _LITE and has_tier(snapshot, tier):
                # Less than what was chosen, and for no fault of the request: the ladder's business, which flags it.
                continue
            tier, reason = other, loss
            candidate, node_reason = scene.choose(other)
            break
        else:
            refuse_if_never(features, snapshot, tier)
    cache_reason, _ = plan_cache(features)
    retrieval_reason, _ = plan_retrieval(features)
    return make(
        Decision,
        (
            tier,
            reason,
            candidate,
            node_reason,
            cache_reason,
            retrieval_reason,
            rule,
            complexity,
            score,
            _weak_signals(complexity, score, candidate),
            features.is_cache_first,
        ),
    )


def weigh(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    now_ms: int,
    rng: random.Random,
    *,
    score_text: ScoreText = score_nothing,
) -> tuple[Complexity, Score | None]:
    """What the score would be, whether a decision needs it or not."""
    return _Live(features, snapshot, settings, now_ms, rng=rng, score_text=score_text).weigh()


def allowed_tiers(features: Features, settings: DecisionSettings) -> Mapping[Tier.ValueType, TierReason.ValueType]:
    """The tiers that a request may go to, with the reason where only one is left by demand. Raises as `decide`."""
    policy = features.policy
    if not features.model and not policy.tier and not policy.is_cascade and features.scopes >= _BOTH_SCOPES:
        return _EITHER
    named = _NO_TIER
    if features.model:
        if features.model not in settings.model_tiers:
            # The name comes from the caller, so the error repeats no more than its head.
            raise MeshError(
                ErrorReason.ERROR_REASON_MODEL_UNKNOWN,
                "the model is unknown; ListModels names those that the key may use",
                metadata={"model": features.model[:64]},
            )
        named = settings.model_tiers[features.model]
    if policy.is_cascade:
        return _cascade_tiers(features, named)
    if policy.tier and named and policy.tier != named:
        raise MeshError(
            ErrorReason.ERROR_REASON_POLICY_INVALID,
            f"the policy forces '{WORD_OF_TIER[policy.tier]}' and the model is of '{WORD_OF_TIER[named]}'",
            fields=[("policy", "contradicts the model")],
        )
    if policy.tier:
        _require_tier(features, policy.tier)
        return {policy.tier: _FORCED}
    if named:
        _require_tier(features, named)
        return {named: _NAMED}
    tiers = [tier for tier in TIERS if WORD_OF_TIER[tier] in features.scopes]
    if not tiers:
        _require_tier(features, settings.default_tier)
    if len(tiers) == 1:
        return {tiers[0]: _SCOPE}
    return dict.fromkeys(tiers, _ANY)


def _cascade_tiers(features: Features, named: Tier.ValueType) -> Mapping[Tier.ValueType, TierReason.ValueType]:
    """The tier that answers first. Raises POLICY_INVALID, and SCOPE_MISSING, since both tiers may be used."""
    if named:
        raise MeshError(
            ErrorReason.ERROR_REASON_POLICY_INVALID,
            f"a cascade uses both tiers and the model is of '{WORD_OF_TIER[named]}'",
            fields=[("policy", "contradicts the model")],
        )
    for tier in TIERS:
        _require_tier(features, tier)
    return {Tier.TIER_LITE: TierReason.TIER_REASON_CASCADE_LITE}


def _require_tier(features: Features, tier: Tier.ValueType) -> None:
    scope = WORD_OF_TIER[tier]
    if scope not in features.scopes:
        raise MeshError(
            ErrorReason.ERROR_REASON_SCOPE_MISSING,
            f"the key lacks the scope '{scope}'",
            metadata={"scope": scope},
        )


def find_rule(features: Features, settings: DecisionSettings) -> Rule | None:
    """The first rule that speaks."""
    if not settings.rules:
        return None
    excerpt = make_excerpt(features.user_text)
    _, latin, lowered = excerpt
    may_hold_words = settings.sieve.catches(lowered or latin)
    for rule in settings.rules:
        if (may_hold_words or rule.words is None) and rule.applies(excerpt, features.user_chars, features.documents):
            return rule
    return None


def prefer(scene: Scene) -> Wish:
    """The tier that is meant, before it is known whether a node of it can serve."""
    features = scene.features
    if features.conversation_tier:
        return _go_on(scene)
    if rule := scene.find_rule():
        return Wish(rule.tier, rule.reason, rule)
    return _by_score(scene)


def _by_score(scene: Scene) -> Wish:
    complexity, score = scene.weigh()
    default = scene.settings.default_tier
    if score is None:
        return Wish(default, _DEFAULT, None, complexity)
    tier, reason = read_tier(score)
    return make(Wish, (tier or default, reason, None, complexity, score))


def _go_on(scene: Scene) -> Wish:
    """A conversation keeps its tier, but for one change of mind.

    Up: a rule, or a score well above the threshold. Down: a score well below it, of a text that is long enough to
    stand for itself; what follows up on a hard question is often short.
    """
    features, settings = scene.features, scene.settings
    pinned = features.conversation_tier
    stay = Wish(pinned, _PINNED)
    if features.conversation_switches >= MAX_SWITCHES:
        return stay
    if pinned == _FULL and features.user_chars < settings.follow_up_chars:
        return stay
    rule = scene.find_rule()
    if rule is not None and rule.tier == pinned:
        return stay._replace(rule=rule)
    if rule is not None and rule.tier == _FULL:
        return Wish(rule.tier, rule.reason, rule)
    wish = _by_score(scene)
    if wish.score is None or wish.reason == _UNCERTAIN or wish.tier == pinned:
        return stay._replace(complexity=wish.complexity, score=wish.score)
    return wish


def _weak_signals(complexity: Complexity | None, score: Score | None, candidate: Candidate | None) -> tuple[str, ...]:
    weak: list[str] = []
    if complexity is not None and complexity.abstention:
        weak.append(f"complexity:{complexity.abstention}")
    if candidate is not None and candidate.is_stale:
        weak.append(f"headroom:{candidate.signals.headroom_weakness}")
    elif score is not None and (weakness := score.weakness):
        weak.append(f"headroom:{weakness}")
    return tuple(weak)


def plan_cache(features: Features) -> tuple[CacheReason.ValueType, str]:
    """What happens about the cache; UNSPECIFIED where it is to be asked, or cannot hold such an answer."""
    if features.policy.is_cache_off:
        return _CACHE_OFF, "cache: off by policy"
    if features.temperature > 0 and not features.is_sampled_cacheable and not features.is_cache_first:
        return _TOO_WARM, "cache: the temperature is above 0"
    if "tools" in features.capabilities:
        return _CACHE_ASKED, "cache: answers that may call tools are not stored"
    if features.needs_logprobs:
        return _CACHE_ASKED, "cache: log-probabilities are not stored"
    return _CACHE_ASKED, "cache: to be asked"


def is_cacheable(features: Features) -> bool:
    """Whether the answer may be looked up and stored."""
    reason, _ = plan_cache(features)
    return reason == _CACHE_ASKED and not features.needs_logprobs and "tools" not in features.capabilities


def plan_retrieval(features: Features) -> tuple[RetrievalReason.ValueType, str]:
    """What happens about retrieval; UNSPECIFIED where passages are to be looked for. Raises SCOPE_MISSING."""
    if features.policy.is_rag_off:
        return _RAG_OFF, "retrieval: off by policy"
    if "rag" in features.scopes:
        return _RAG_ASKED, "retrieval: where there are collections"
    if features.names_collections:
        raise MeshError(
            ErrorReason.ERROR_REASON_SCOPE_MISSING,
            "the key lacks the scope 'rag'",
            metadata={"scope": "rag"},
        )
    return _NO_RAG_SCOPE, "retrieval: the key lacks the scope 'rag'"
