# cython: annotation_typing=False
"""What a decision leaves behind: numbers for metrics, words for logs, an event on the trace.

`footprint.pxd` gives the types with which this very file is compiled.
"""

from collections.abc import Mapping
from typing import Final

from ssop.v1.mesh_pb2 import NodeReason, Tier, TierReason
from ssop_chassis.tracing import AttributeValue, add_event
from ssop_codec import probes
from ssop_router.core.decision import Decision
from ssop_router.metrics import RouterMetrics

_PLACES: Final = 10_000.0
# A double of this size has no places: what is added to it is rounded to a whole number, as `round` does it.
_WHOLE: Final = 1.5 * 2**52
_LARGEST: Final = 1e9


def describe_reasons(decision: Decision) -> dict[str, AttributeValue]:
    """Score and reasons beyond the tier's, as far as there are any. Never a text."""
    found: dict[str, AttributeValue] = {}
    rule, complexity, score = decision.rule, decision.complexity, decision.score
    if rule is not None:
        found["rule"] = rule.name
    if complexity is not None:
        if (value := complexity.score) is not None:
            found["complexity"] = _shorten(value)
        if abstention := complexity.abstention:
            found["abstention"] = abstention
    if score is not None:
        found["score"] = _shorten(score.value)
        found["score_spread"] = _shorten(score.spread)
        found["threshold"] = _shorten(score.threshold)
    if weak_signals := decision.weak_signals:
        found["weak_signals"] = list(weak_signals)
    if decision.is_cache_first:
        found["is_cache_first"] = True
    return found


def _shorten(value: float) -> float:
    """To four places; what is no number, or a larger one than scores are, stays. `round(value, 4)` makes a text."""
    return (value * _PLACES + _WHOLE - _WHOLE) / _PLACES if -_LARGEST < value < _LARGEST else value


def leave(decision: Decision, decision_us: int, metrics: RouterMetrics) -> None:
    """Count a decision that is acted on, and note it on the trace."""
    probes.decided(decision.tier, 1000 * decision_us)
    metrics.decision_seconds.observe(decision_us / 1_000_000)
    metrics.decisions_of[decision.tier, decision.tier_reason].inc()
    if (rule := decision.rule) is not None:
        metrics.rules.labels(rule.name).inc()
    if (complexity := decision.complexity) is not None:
        if (score := complexity.score) is not None:
            metrics.complexity.observe(score)
        if abstention := complexity.abstention:
            metrics.abstentions.labels(abstention).inc()
    for weak in decision.weak_signals:
        signal, _, weakness = weak.partition(":")
        metrics.weak_signals.labels(signal, weakness).inc()

    def attributes() -> Mapping[str, AttributeValue]:
        return {
            f"ssop.{name}": value
            for name, value in {
                "tier": Tier.Name(decision.tier),
                "tier_reason": TierReason.Name(decision.tier_reason),
                "node": decision.candidate.node if decision.candidate is not None else "",
                "node_reason": NodeReason.Name(decision.node_reason),
                "decision_us": decision_us,
                **describe_reasons(decision),
            }.items()
        }

    add_event("ssop.decision", attributes)
