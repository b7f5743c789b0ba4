"""A tenant's usage: counters of requests, and days of counters. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from typing import Final

from ssop.v1.mesh_pb2 import Tier, Usage
from ssop.v1.usage_pb2 import DayUsage, RequestCounts, TierUsage

_WORD_OF_TIER: Final[Mapping[Tier.ValueType, str]] = {
    Tier.TIER_UNSPECIFIED: "none",
    Tier.TIER_LITE: "lite",
    Tier.TIER_FULL: "full",
}
_TIER_OF_WORD: Final = {word: tier for tier, word in _WORD_OF_TIER.items()}
_TOKENS: Final = ("input_tokens", "output_tokens", "cached_input_tokens")
_NAMES: Final = {tier: tuple(f"{tier}.{name}" for name in _TOKENS) for tier in _TIER_OF_WORD}
_DAY_COUNTERS, _TIER_COUNTERS = (
    frozenset(field.name for field in message.DESCRIPTOR.fields if field.type == field.TYPE_UINT64)
    for message in (DayUsage, TierUsage)
)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


def count_request(usage: Usage, counts: RequestCounts) -> dict[str, int]:
    """The counters that a request adds to, by name."""
    tier = _WORD_OF_TIER.get(counts.tier, "none")
    found = dict(zip(_NAMES[tier], (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens), strict=True))
    if counts.HasField("discarded_usage"):
        # Each tier's tokens have that tier's price.
        for name in _TOKENS:
            discarded = min(getattr(counts.discarded_usage, name), getattr(usage, name))
            found[f"{tier}.{name}"] -= discarded
            found[f"lite.{name}"] = found.get(f"lite.{name}", 0) + discarded
    return {
        f"{tier}.requests": 1,
        **found,
        "cached": int(counts.is_cached),
        "degraded": int(counts.is_degraded),
        "failed": int(counts.is_failed),
        "prefetches": counts.prefetches,
        "prefetch_hits": counts.prefetch_hits,
        "prefetch_tokens": counts.prefetch_tokens,
    }


def read_days(fields: Mapping[str, int], *, days: int, now_ms: int) -> list[DayUsage]:
    """The last days of the fields of a tenant's usage (`Layout`), oldest first; unknown counters are left out."""
    today = now_ms // 86_400_000
    found: defaultdict[int, DayUsage] = defaultdict(DayUsage)
    tiers: dict[tuple[int, str], TierUsage] = {}
    for field, amount in fields.items():
        number, _, counter = field.partition("/")
        if not counter or not today - days < int(number) <= today:
            continue
        day = int(number)
        word, _, name = counter.rpartition(".")
        if not word and name in _DAY_COUNTERS:
            setattr(found[day], name, amount)
        elif word in _TIER_OF_WORD and name in _TIER_COUNTERS:
            usage = tiers.setdefault((day, word), TierUsage(tier=_TIER_OF_WORD[word]))
            setattr(usage, name, amount)
    for (day, _), usage in sorted(tiers.items(), key=lambda item: (item[0][0], item[1].tier)):
        found[day].tiers.append(usage)
    for day, usage_of_day in found.items():
        usage_of_day.day = date.fromordinal(_EPOCH_ORDINAL + day).isoformat()
    return [found[day] for day in sorted(found)]
