"""Says in words and numbers how a decision came about. Pure; far too slow for every request."""

from collections.abc import Iterator
from dataclasses import dataclass

from ssop.v1.mesh_pb2 import NodeReason, Tier, TierReason
from ssop_router.core.complexity import Complexity
from ssop_router.core.decision import TIERS, Decision, plan_cache, plan_retrieval
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.routing import Verdict, judge_nodes
from ssop_router.core.rules import make_excerpt
from ssop_router.core.score import Score
from ssop_router.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """A rule, and whether all its conditions hold."""

    name: str
    tier: Tier.ValueType
    is_speaking: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that a decision looked at, needed or not."""

    lines: tuple[str, ...]
    rules: tuple[RuleVerdict, ...]
    verdicts: tuple[Verdict, ...]
    score: Score | None = None


def explain(
    decision: Decision,
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    *,
    now_ms: int,
    complexity: Complexity,
    score: Score | None,
) -> Explanation:
    """Explain a decision over what it was made of. `complexity` and `score` are what `weigh` says."""
    text = make_excerpt(features.user_text)
    rules = tuple(
        RuleVerdict(rule.name, rule.tier, rule.applies(text, len(features.user_text), features.documents))
        for rule in settings.rules
    )
    tiers = [tier for tier in TIERS if WORD_OF_TIER[tier] in features.scopes]
    verdicts = tuple(verdict for tier in tiers for verdict in judge_nodes(features, snapshot, settings, tier, now_ms))
    lines = [
        _tell_tier(decision),
        *_tell_score(complexity, score),
        *_tell_rules(rules),
        *_tell_nodes(decision, verdicts),
        plan_cache(features)[1],
        plan_retrieval(features)[1],
    ]
    return Explanation(tuple(lines), rules, verdicts, score)


def _tell_tier(decision: Decision) -> str:
    reason = TierReason.Name(decision.tier_reason).removeprefix("TIER_REASON_").lower()
    by_rule = f", rule '{decision.rule.name}'" if decision.rule is not None else ""
    return f"tier {WORD_OF_TIER[decision.tier]}: {reason}{by_rule}"


def _tell_score(complexity: Complexity, score: Score | None) -> Iterator[str]:
    if score is None:
        yield f"score: none, the classifier abstains ({complexity.abstention or 'no number'})"
        return
    side = "from the threshold up" if score.value >= score.threshold else "under the threshold"
    yield f"score {score.value:.3f} ± {score.spread:.3f}, {side} {score.threshold:.3f}"
    for part in score.parts:
        age = "no age" if part.age_ms is None else f"{part.age_ms} ms old"
        weakness = f", {part.weakness}" if part.weakness else ""
        yield (
            f"  {part.signal}: {part.value:+.3f} ± {part.spread:.3f}, weight {part.weight:g}, "
            f"adds {part.value * part.weight:+.3f} ({age}{weakness})"
        )


def _tell_rules(rules: tuple[RuleVerdict, ...]) -> Iterator[str]:
    for rule in rules:
        if rule.is_speaking:
            yield f"rule '{rule.name}' speaks for {WORD_OF_TIER[rule.tier]}"


def _tell_nodes(decision: Decision, verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.fault and verdict.fault != "tier" and verdict.tier == decision.tier:
            yield f"node {verdict.node} is out: {verdict.fault}"
    candidate = decision.candidate
    if candidate is None:
        yield "no node of the tier can serve now"
        return
    of = sum(not verdict.fault for verdict in verdicts if verdict.tier == decision.tier)
    reason = NodeReason.Name(decision.node_reason).removeprefix("NODE_REASON_").lower()
    certainty = "status unknown or old" if candidate.is_stale else "status fresh"
    yield f"node {candidate.node}: {reason}, load {candidate.load:.2f}, {certainty}, 1 of {of}"
