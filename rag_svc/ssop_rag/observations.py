"""Metrics of the RAG service. Tenants are labels here: an operator's keys bound their number."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from ssop_rag.core.prefetch import Waste

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
        self._skipped = Counter(
            "ssop_rag_documents_skipped", "Stored documents that were not loaded.", ["fault"], registry=registry
        )

    def prefetch_hit(self, tenant: str, kind: str, overlap_s: float) -> None:
        """A prefetch was used: `kind` is `candidates` or `vector`."""
        self._prefetches.labels(tenant, "hit", kind).inc()
        self._overlap.observe(overlap_s)

    def prefetch_wasted(self, tenant: str, why: Waste) -> None:
        """A prefetch was for nothing."""
        self._prefetches.labels(tenant, "wasted", why.value).inc()

    def prefetch_shed(self, tenant: str, why: str) -> None:
        """A prefetch was not started: `tenant_full`, `book_full` or `busy`."""
        self._prefetches.labels(tenant, "shed", why).inc()

    def documents(self, tenant: str, *, indexed: int, unchanged: int, refused: int) -> None:
        """An upsert ended."""
        self._documents.labels(tenant, "unchanged").inc(unchanged)
        self._documents.labels(tenant, "indexed").inc(indexed)
        self._documents.labels(tenant, "refused").inc(refused)

    def stage(self, name: str, duration_s: float) -> None:
        """A stage of Retrieve took so long: `embed` or `search`."""
        self._stage.labels(name).observe(duration_s)

    def query_cut(self) -> None:
        """A query was too long to embed whole."""
        self._cut.inc()

    def skipped(self, fault: str, count: int) -> None:
        """Stored documents were not loaded. Safe on any thread."""
        self._skipped.labels(fault).inc(count)
