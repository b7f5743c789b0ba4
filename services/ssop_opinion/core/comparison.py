"""Two alert policies, side by side: how long from the first post to the alert, and to its acknowledgement. Pure.

Intervals are percentile bootstraps (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), with
the random source passed in.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import median
from typing import Any, Final, Literal

from ssop_opinion.core.alerts import Alert

Split = Literal["tenant", "region", "policy"]
RESAMPLES: Final = 2_000
MAX_SAMPLE: Final = 2_000
_MEASURES: Final = ("post_to_alert_ms", "alert_to_acknowledgement_ms", "post_to_acknowledgement_ms")


def compare(
    alerts: Sequence[Alert], by: Split, names: tuple[str, str], rng: Random, *, level: float = 0.95
) -> dict[str, Any]:
    """Both groups, and the difference of their medians (the first less the second) with an interval each.

    Alerts that rest on degraded answers, and those that were withdrawn, are counted and not measured.
    """
    groups = {name: alerts_of(alerts, by, name) for name in names}
    measured = {name: _measures(found) for name, found in groups.items()}
    return {
        "by": by,
        "level": level,
        "groups": {name: _describe(groups[name], measured[name], rng, level) for name in names},
        "differences": {
            measure: _difference(measured[names[0]][measure], measured[names[1]][measure], rng, level)
            for measure in _MEASURES
        },
    }


def alerts_of(alerts: Iterable[Alert], by: Split, name: str) -> list[Alert]:
    """The alerts of a group; summaries of storms are none."""
    return [one for one in alerts if one.kind == "alert" and getattr(one, by) == name]


def _measures(alerts: Sequence[Alert]) -> Mapping[str, Sequence[float]]:
    sound = [one for one in alerts if one.phase != "withdrawn" and not one.degraded_posts]
    seen = [one for one in sound if one.acknowledged_ms]
    return {
        "post_to_alert_ms": [max(0, one.opened_ms - one.first_post_ms) for one in sound],
        "alert_to_acknowledgement_ms": [max(0, one.acknowledged_ms - one.opened_ms) for one in seen],
        "post_to_acknowledgement_ms": [max(0, one.acknowledged_ms - one.first_post_ms) for one in seen],
    }


def _describe(
    alerts: Sequence[Alert], measured: Mapping[str, Sequence[float]], rng: Random, level: float
) -> dict[str, Any]:
    return {
        "alerts": len(alerts),
        "withdrawn_apart": sum(one.phase == "withdrawn" for one in alerts),
        "degraded_apart": sum(bool(one.degraded_posts) and one.phase != "withdrawn" for one in alerts),
        "acknowledged": len(measured["post_to_acknowledgement_ms"]),
        "escalations": sum(one.escalations for one in alerts),
        **{measure: _interval(measured[measure], rng, level) for measure in _MEASURES},
    }


def _interval(values: Sequence[float], rng: Random, level: float) -> dict[str, Any] | None:
    if not values:
        return None
    resampled = sorted(median(one) for one in _resamples(values, rng))
    return {"n": len(values), "median": median(values), **_bounds(resampled, level)}


def _difference(ones: Sequence[float], others: Sequence[float], rng: Random, level: float) -> dict[str, Any] | None:
    if not ones or not others:
        return None
    pairs = zip(_resamples(ones, rng), _resamples(others, rng), strict=True)
    resampled = sorted(median(one) - median(other) for one, other in pairs)
    return {"median": median(ones) - median(others), **_bounds(resampled, level)}


def _resamples(values: Sequence[float], rng: Random) -> Iterable[list[float]]:
    size = min(len(values), MAX_SAMPLE)
    # Of more values than MAX_SAMPLE fewer are drawn, which makes intervals wider and never narrower.
    return (rng.choices(values, k=size) for _ in range(RESAMPLES))


def _bounds(found: Sequence[float], level: float) -> dict[str, float]:
    tail = round((1 - level) / 2 * len(found))
    return {"low": found[tail], "high": found[-1 - tail]}
