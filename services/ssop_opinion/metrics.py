"""What the application counts. Labels are bounded: doors, outcomes and reasons are words of this package.

Tenants are labels here, the first MAX_TENANTS of them; others are `other`.
"""

from collections import Counter as Counted
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MAX_TENANTS: Final = 200
POST_BUCKETS_S: Final = (*(step / 10 for step in range(1, 31)), 5.0, 10.0, 30.0, 60.0, 300.0)
"""Steps of 0.1 s around the 1.8 s within which a record is due."""


class OpinionMetrics:
    """Posts in, through and out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.posts = Counter(
            "ssop_opinion_posts",
            "Posts that came, by door and outcome: queued, duplicate, sampled_out, refused, faulty.",
            ["door", "outcome"],
            registry=registry,
        )
        self.requests = Counter(
            "ssop_opinion_webhooks", "Webhook requests by status.", ["http_response_status_code"], registry=registry
        )
        self.dead_letters = Counter(
            "ssop_opinion_dead_letters", "What became no record, by reason.", ["reason"], registry=registry
        )
        self.dropped = Counter(
            "ssop_opinion_dropped", "Accepted posts that the policy `oldest` dropped.", registry=registry
        )
        self.letters_dropped = Counter(
            "ssop_opinion_dead_letters_dropped", "Dead letters that had to go for newer ones.", registry=registry
        )
        self.queued = Gauge(
            "ssop_opinion_queue_posts", "Posts that wait or are worked on, anywhere.", registry=registry
        )
        self.tenant_queued = Gauge(
            "ssop_opinion_tenant_queue_posts",
            "Those of each tenant; of those beyond the first 200, as `other`.",
            ["tenant"],
            registry=registry,
        )
        self.tenant_refused = Counter(
            "ssop_opinion_tenant_refused",
            "Posts that found no room, by tenant; of those beyond the first 200, as `other`.",
            ["tenant"],
            registry=registry,
        )
        self._tenants: set[str] = set()
        self.letters = Gauge("ssop_opinion_dead_letters_kept", "Dead letters that are kept.", registry=registry)
        self.in_flight = Gauge("ssop_opinion_analyses_running", "Posts of this worker.", registry=registry)
        self.taken_over = Counter("ssop_opinion_taken_over", "Posts of workers that fell silent.", registry=registry)
        self.away = Gauge(
            "ssop_opinion_away",
            "1 while it can't be reached; of `tenant`: how many the mesh refuses.",
            ["what"],
            registry=registry,
        )
        self.tries = Counter("ssop_opinion_retries", "Tries that failed, by what failed.", ["what"], registry=registry)
        self.records = Counter(
            "ssop_opinion_records", "Records in the sink.", ["verdict", "is_degraded", "cache"], registry=registry
        )
        self.post_seconds = Histogram(
            "ssop_opinion_post_seconds",
            "From the door to the sink.",
            buckets=POST_BUCKETS_S,
            registry=registry,
        )
        self.analysis_seconds = Histogram(
            "ssop_opinion_analysis_seconds", "Analysis of a post.", buckets=POST_BUCKETS_S, registry=registry
        )
        self.write_seconds = Histogram(
            "ssop_opinion_write_seconds",
            "One write of the sink.",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=registry,
        )
        self.write_records = Histogram(
            "ssop_opinion_write_records", "Records of one write.", buckets=(1, 2, 5, 10, 25, 50, 100, 250, 500),
            registry=registry,
        )  # fmt: skip

    def tell_lengths(self, lengths: Mapping[str, int]) -> None:
        """How many posts of each tenant wait or are worked on."""
        found: Counted[str] = Counted()
        for tenant, length in lengths.items():
            found[self._label(tenant)] += length
        for label, length in found.items():
            self.tenant_queued.labels(label).set(length)

    def refused(self, tenant: str, count: int) -> None:
        """Posts of a tenant found no room."""
        self.tenant_refused.labels(self._label(tenant)).inc(count)

    def _label(self, tenant: str) -> str:
        if tenant not in self._tenants:
            if len(self._tenants) >= MAX_TENANTS:
                return "other"
            self._tenants.add(tenant)
        return tenant
