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

_PLACES: Final = 10_000


def describe_reasons(decision: Decision) -> dict[str, AttributeValue]:
    """Score and reasons beyond the tier's, as far as there are any. Never a text."""
    found: dict[str, AttributeValue] = {}
    if decision.rule is not None:
        found["rule"] = decision.rule.name
    if decision.complexity is not None:
        if decision.complexity.score is not None:
            found["complexity"] = _shorten(decision.complexity.score)
        if decision.complexity.abstention:
            found["abstention"] = decision.complexity.abstention
    if decision.score is not None:
        found["score"] = _shorten(decision.score.value)
        found["score_spread"] = _shorten(decision.score.spread)
        found["threshold"] = _shorten(decision.score.threshold)
    if decision.weak_signals:
        found["weak_signals"] = list(decision.weak_signals)
    if decision.is_cache_first:
        found["is_cache_first"] = True
    return found


def _shorten(value: float) -> float:
    """To four places. `round(value, 4)` goes by way of a text, and costs ten times this."""
    try:
        return round(value * _PLACES) / _PLACES
    except (OverflowError, ValueError):
        return value  # no number, or an endless one


def leave(decision: Decision, decision_us: int, metrics: RouterMetrics) -> None:
    """Count a decision that is acted on, and note it on the trace."""
    probes.decided(decision.tier, 1000 * decision_us)
    metrics.decision_seconds.observe(decision_us / 1_000_000)
    metrics.decisions_of[decision.tier, decision.tier_reason].inc()
    if decision.rule is not None:
        metrics.rules.labels(decision.rule.name).inc()
    if decision.complexity is not None:
        if decision.complexity.score is not None:
            metrics.complexity.observe(decision.complexity.score)
        if decision.complexity.abstention:
            metrics.abstentions.labels(decision.complexity.abstention).inc()
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
