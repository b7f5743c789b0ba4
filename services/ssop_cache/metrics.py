"""What the cache counts. No label holds a tenant, a key or a request id."""

import prometheus_client
from prometheus_client import CollectorRegistry

from ssop_chassis.tallies import Counter, Gauge


class CacheMetrics:
    """Counters and gauges of the cache service, on a registry that is passed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lookups = Counter("ssop_cache_lookups", "Look-ups by outcome.", ["outcome"], registry=registry)
        self.refusals = Counter("ssop_cache_refusals", "Admissions refused, by reason.", ["reason"], registry=registry)
        self.rate_limit_rps = Gauge(
            "ssop_cache_rate_limit_rps",
            "Requests per second and tenant that the last admission was held to; 0 is no limit.",
            registry=registry,
        )
        self.charged_tokens = Counter("ssop_cache_charged_tokens", "Tokens charged.", registry=registry)
        self.settlements = Counter("ssop_cache_settlements", "Settlements by outcome.", ["outcome"], registry=registry)
        self.commits = Counter("ssop_cache_commits", "Ends of generations by outcome.", ["outcome"], registry=registry)
        self.not_stored = Counter(
            "ssop_cache_answers_not_stored",
            "Complete answers that were not stored, by reason.",
            ["reason"],
            registry=registry,
        )
        self.overflows = Counter(
            "ssop_cache_backlog_overflows",
            "Generations that can't be followed any more: too many bytes.",
            registry=registry,
        )
        self.unusable = Counter(
            "ssop_cache_answers_unusable", "Stored records that were not served: wrong or broken.", registry=registry
        )
        self.store_errors = Counter(
            "ssop_cache_store_errors", "Failed calls of Redis, by role and kind.", ["role", "kind"], registry=registry
        )
        self.redirections = Counter(
            "ssop_cache_redirections",
            "Commands that a cluster sent elsewhere or put off, by role and kind: moved, ask, try_again.",
            ["role", "kind"],
            registry=registry,
        )
        self.is_store_up = Gauge(
            "ssop_cache_store_up", "1 while all instances of the role answer.", ["role"], registry=registry
        )
        self.state_used_bytes = Gauge(
            "ssop_cache_state_used_bytes",
            "Memory of the fullest instance of the state, which never evicts.",
            registry=registry,
        )
        self.state_max_bytes = Gauge(
            "ssop_cache_state_max_bytes", "Most memory of that instance; 0: no bound, or not known.", registry=registry
        )
        self.hits = Counter("ssop_cache_hits", "Answers found, by level: local, shared.", ["level"], registry=registry)
        self.similar_hits = Counter("ssop_cache_similar_hits", "Similar answers that were found.", registry=registry)
        self.similar_refusals = Counter(
            "ssop_cache_similar_refusals",
            "Near questions that a guard told apart, by guard.",
            ["guard"],
            registry=registry,
        )
        self.local_bytes = Gauge("ssop_cache_local_bytes", "Bytes of answers on this host.", registry=registry)
        self.local_answers = Gauge("ssop_cache_local_answers", "Answers on this host.", registry=registry)
        self.is_local_synced = Gauge(
            "ssop_cache_local_synced", "1 while this host hears of changes of stored answers.", registry=registry
        )
        self.is_local_kept = Gauge(
            "ssop_cache_local_kept", "1 while the answers of this host survive a restart.", registry=registry
        )
        self.local_evictions = Counter(
            "ssop_cache_local_evictions", "Answers that left this host for want of room.", registry=registry
        )
        # The thread of the folder counts here, too.
        self.local_faults = prometheus_client.Counter(
            "ssop_cache_local_faults",
            "Faults of this host's level: folder, entry, cursor (thrown away); open, write; gap, untold (changes).",
            ["kind"],
            registry=registry,
        )
        self.feeds = Gauge("ssop_cache_followed_generations", "Generations that are followed here.", registry=registry)
        self.keys_purged = Counter(
            "ssop_cache_keys_purged", "API keys whose records went, having ended long ago.", registry=registry
        )
        self.loop_lag = Counter(
            "ssop_cache_loop_lag_seconds",
            "Time for which the loop was late while a store was waited for; it counts for no time-out.",
            registry=registry,
        )
