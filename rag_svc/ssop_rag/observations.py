"""Metrics of the RAG service. Tenants are labels here, the first `MAX_TENANTS` of them; others are `other`."""

from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry

from ssop_chassis.tallies import Counter, Gauge, Histogram
from ssop_rag.core.prefetch import Use, Waste

MAX_TENANTS: Final = 200
_STAGE_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class RagMetrics:
    """What the service counts, on a registry that is passed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._prefetches = Counter(
            "ssop_rag_prefetches",
            "Prefetches by what became of them: hit, wasted or shed, and why.",
            ["tenant", "outcome", "reason"],
            registry=registry,
        )
        self._tenants: set[str] = set()
        self._tokens = Counter(
            "ssop_rag_prefetch_tokens", "Words and characters embedded for prefetches.", ["tenant"], registry=registry
        )
        self._saved = Counter(
            "ssop_rag_prefetch_saved_seconds", "Time that requests did not wait.", ["tenant"], registry=registry
        )
        self._wasted = Counter(
            "ssop_rag_prefetch_wasted_seconds", "Work of prefetches for nothing.", ["tenant"], registry=registry
        )
        self._off = Gauge(
            "ssop_rag_prefetch_off", "1 while prefetches save less than they cost.", ["tenant"], registry=registry
        )
        self._memo = Counter(
            "ssop_rag_query_vectors", "Queries, by whether their vector was kept.", ["outcome"], registry=registry
        )
        self._overlap = Histogram(
            "ssop_rag_prefetch_overlap_seconds",
            "Work of used prefetches that was done before their request came.",
            buckets=_STAGE_BUCKETS_S,
            registry=registry,
        )
        self._documents = Counter(
            "ssop_rag_documents", "Documents given to index.", ["tenant", "outcome"], registry=registry
        )
        self._stage = Histogram(
            "ssop_rag_retrieve_seconds", "Stages of Retrieve.", ["stage"], buckets=_STAGE_BUCKETS_S, registry=registry
        )
        self._cut = Counter(
            "ssop_rag_queries_cut", "Queries of which only the beginning was embedded.", registry=registry
        )
        self._reranks = Counter(
            "ssop_rag_reranks",
            "Uses of the reranker: done, or skipped because it was late, failed, malformed or busy.",
            ["outcome"],
            registry=registry,
        )
        # The threads of the store count here.
        self._skipped = prometheus_client.Counter(
            "ssop_rag_documents_skipped", "Stored documents that were not loaded.", ["fault"], registry=registry
        )

        self._damage = prometheus_client.Gauge(
            "ssop_rag_store_damage",
            "What was lost with damaged files when the index was opened: files, places, documents known of, stores.",
            ["what"],
            registry=registry,
        )

    def prefetch_started(self, tenant: str, tokens: int) -> None:
        """A prefetch embeds so many tokens."""
        self._tokens.labels(self._label(tenant)).inc(tokens)

    def prefetch_hit(self, tenant: str, use: Use, overlap_s: float, saved_s: float) -> None:
        """A prefetch was used."""
        self._prefetches.labels(self._label(tenant), "hit", use.value).inc()
        self._saved.labels(self._label(tenant)).inc(saved_s)
        self._overlap.observe(overlap_s)

    def prefetch_wasted(self, tenant: str, why: Waste, wasted_s: float) -> None:
        """A prefetch was for nothing."""
        self._prefetches.labels(self._label(tenant), "wasted", why.value).inc()
        self._wasted.labels(self._label(tenant)).inc(wasted_s)

    def prefetch_shed(self, tenant: str, why: str) -> None:
        """A prefetch was not started: `tenant_full`, `book_full`, `busy`, `budget` or `off`."""
        self._prefetches.labels(self._label(tenant), "shed", why).inc()

    def prefetch_off(self, tenant: str, *, is_off: bool) -> None:
        """Prefetches of a tenant went off or on."""
        self._off.labels(self._label(tenant)).set(is_off)

    def query_vector(self, *, is_known: bool) -> None:
        """A query's vector was kept from before, or had to be made."""
        self._memo.labels("known" if is_known else "made").inc()

    def _label(self, tenant: str) -> str:
        if tenant not in self._tenants:
            if len(self._tenants) >= MAX_TENANTS:
                return "other"
            self._tenants.add(tenant)
        return tenant

    def documents(self, tenant: str, *, indexed: int, unchanged: int, refused: int) -> None:
        """An upsert ended."""
        self._documents.labels(self._label(tenant), "unchanged").inc(unchanged)
        self._documents.labels(self._label(tenant), "indexed").inc(indexed)
        self._documents.labels(self._label(tenant), "refused").inc(refused)

    def stage(self, name: str, duration_s: float) -> None:
        """A stage of Retrieve took so long: `embed` or `search`."""
        self._stage.labels(name).observe(duration_s)

    def query_cut(self) -> None:
        """A query was too long to embed whole."""
        self._cut.inc()

    def rerank(self, outcome: str) -> None:
        """The reranker was asked, or could not be."""
        self._reranks.labels(outcome).inc()

    def skipped(self, fault: str, count: int) -> None:
        """Stored documents were not loaded. Safe on any thread."""
        self._skipped.labels(fault).inc(count)

    def damaged(self, what: str, count: int) -> None:
        """So much was lost with damaged files. Safe on any thread."""
        self._damage.labels(what).set(count)
