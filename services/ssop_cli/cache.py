"""The cache's levels, as they look in a terminal."""

from typing import Any

from ssop.v1.cache_admin_pb2 import CacheStats
from ssop_cache.core.fill import Fill

_MIB = 1 << 20


def cache_json(stats: CacheStats) -> dict[str, Any]:
    """As JSON."""
    return {
        "local": {
            "is_on": stats.has_local,
            "answers": stats.local_answers,
            "bytes": stats.local_bytes,
            "max_bytes": stats.local_max_bytes,
            "is_kept": stats.is_local_kept,
            "is_synced": stats.is_local_synced,
            "hits": stats.local_hits,
        },
        "shared": {"hits": stats.shared_hits},
        "misses": stats.misses,
        "similar": {"hits": stats.similar_hits, "refusals": dict(sorted(stats.similar_refusals.items()))},
        "state": {
            "used_bytes": stats.state_used_bytes,
            "max_bytes": stats.state_max_bytes,
            "is_filling": fill_of(stats).is_filling,
        },
    }


def cache_lines(stats: CacheStats) -> list[str]:
    """A line for each level, and one for what was found nowhere."""
    lines = []
    if stats.has_local:
        size = f"{stats.local_bytes / _MIB:.1f} of {stats.local_max_bytes / _MIB:.0f} MiB"
        notes = [
            "kept on disk" if stats.is_local_kept else "in memory only",
            *([] if stats.is_local_synced else ["hears of no changes: serves only what Redis can't"]),
        ]
        lines.append(f"host   {stats.local_hits:,} hits, {stats.local_answers:,} answers, {size}, {', '.join(notes)}")
    lines += [f"Redis  {stats.shared_hits:,} hits", f"none   {stats.misses:,} look-ups"]
    if stats.similar_hits or stats.similar_refusals:
        told_apart = ", ".join(f"{kind} {count:,}" for kind, count in sorted(stats.similar_refusals.items()))
        lines.append(f"near   {stats.similar_hits:,} similar answers; told apart: {told_apart or 'none'}")
    return lines


def fill_of(stats: CacheStats) -> Fill:
    """How full the state is; nothing of both where the service does not say."""
    return Fill(stats.state_used_bytes, stats.state_max_bytes)


def state_line(fill: Fill) -> str:
    """What the state uses of its memory, and what comes of it once it is full; empty where it has no bound."""
    if not fill.max_bytes:
        return ""
    size = f"{fill.used_bytes / _MIB:.1f} of {fill.max_bytes / _MIB:.0f} MiB"
    if not fill.is_filling:
        return size
    return (
        f"{size}: once it is full, requests go on without admission and cache, flagged, and those of tenants with a"
        " token budget are refused; fewer requests, or more maxmemory (docs/redis.md, sizing)"
    )
