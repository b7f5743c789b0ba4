# cython: annotation_typing=False
"""The retrieval service as requests see it: a tenant's collections, prefetches, passages.

`retrieval.pxd` gives the types with which this very file is compiled.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ssop.v1.inference_pb2 import Passage
from ssop.v1.mesh_pb2 import RetrievalReason
from ssop.v1.rag_pb2 import (
    CancelPrefetchRequest,
    ListCollectionsRequest,
    ListCollectionsResponse,
    PrefetchOutcome,
    PrefetchRequest,
    PrefetchResponse,
    RetrieveRequest,
    RetrieveResponse,
)
from ssop.v1.router_pb2 import RetrievalOptions
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable
from ssop_router.features import last_user_text
from ssop_router.job import Job
from ssop_router.profiles import Regimes
from ssop_router.settings import RouterSettings

_SERVICE: Final = "/ssop.v1.RagService/"
_TENANTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Collections:
    """Collections to search, in order of their names, and the stamps of their versions."""

    names: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    @property
    def index_version(self) -> str:
        """The versions as a retrieval names them, for cache keys."""
        if not self.names:
            return ""
        return ",".join(f"{name}:{version}" for name, version in zip(self.names, self.versions, strict=False))


NO_COLLECTIONS: Final = Collections()


@dataclass(frozen=True, slots=True)
class Found:
    """What a retrieval found, and what a prefetch had to do with it."""

    passages: Sequence[Passage] = ()
    index_version: str = ""
    is_prefetch_hit: bool = False
    is_lossy: bool = False
    overlap_ms: int = 0

    @property
    def reason(self) -> RetrievalReason.ValueType:
        """As the decision frame says it."""
        if not self.is_prefetch_hit:
            return RetrievalReason.RETRIEVAL_REASON_RETRIEVED
        if self.is_lossy:
            return RetrievalReason.RETRIEVAL_REASON_PREFETCHED_LOSSY
        return RetrievalReason.RETRIEVAL_REASON_PREFETCHED


class Retrieval:
    """Calls of the retrieval service, each with its deadline. `clock_ms` is monotonic."""

    def __init__(
        self,
        rag: Dependency | None,
        settings: RouterSettings,
        clock_ms: Callable[[], int],
        regimes: Regimes | None = None,
    ) -> None:
        self._rag = rag
        self._settings = settings
        self._clock_ms = clock_ms
        self._regimes = regimes
        self._known: OrderedDict[str, tuple[int, dict[str, str]]] = OrderedDict()

    def known_collections(self, tenant: str, named: Sequence[str]) -> Collections | None:
        """As `find_collections`, where nobody has to be asked; else None. Raises Unavailable."""
        if self._rag is None:
            if named:
                raise Unavailable("rag")
            return NO_COLLECTIONS
        expires_ms, known = self._known.get(tenant, (0, {}))
        if self._clock_ms() >= expires_ms or not known.keys() >= set(named):
            return None
        return _pick(named, known)

    async def find_collections(
        self, tenant: str, named: Sequence[str], metadata: InnerMetadata, timeout_s: float
    ) -> Collections:
        """The named collections of a tenant, or all of them. Raises Unavailable.

        Names that the tenant does not have stay in, so that the retrieval service refuses them.
        """
        found = self.known_collections(tenant, named)
        if found is not None:
            return found
        expires_ms = self._clock_ms() + self._settings.collections_ttl_ms
        known = await self._list(metadata, timeout_s)
        self._known[tenant] = (expires_ms, known)
        self._known.move_to_end(tenant)
        if len(self._known) > _TENANTS:
            self._known.popitem(last=False)
        return _pick(named, known)

    def forget(self, tenant: str) -> None:
        """The tenant's collections have changed: ask for them again."""
        self._known.pop(tenant, None)

    async def retrieve(self, job: Job) -> Found:
        """The passages for a job. Raises Unavailable, and COLLECTION_UNKNOWN for a name of the caller's."""
        request = RetrieveRequest(
            request_id=job.request_id,
            collections=job.request.retrieval.collections,
            query=last_user_text(job.request.prompt),
            top_k=job.request.retrieval.top_k or self._settings.retrieval_top_k,
        )
        response = RetrieveResponse.FromString(
            await self._require().unary(
                f"{_SERVICE}Retrieve",
                request.SerializeToString(),
                timeout_s=self.timeout_s(job.remaining_s()),
                metadata=job.inner_metadata,
            )
        )
        return Found(
            tuple(response.passages),
            response.index_version,
            response.is_prefetch_hit,
            response.is_lossy,
            response.overlap_ms,
        )

    async def prefetch(
        self, tenant: str, request_id: str, options: RetrievalOptions, prefix: str, metadata: InnerMetadata
    ) -> PrefetchResponse:
        """Start a retrieval from the first words of a query; what became of it. Raises Unavailable, MeshError."""
        ratio = options.rag_prefetch_ratio if options.HasField("rag_prefetch_ratio") else self._ratio()
        if not ratio:
            return PrefetchResponse(outcome=PrefetchOutcome.PREFETCH_OUTCOME_NOTHING)
        timeout_s = self.timeout_s(self._settings.retrieval_timeout_ms / 1000)
        collections = await self.find_collections(tenant, options.collections, metadata, timeout_s)
        if self._rag is None or not collections.names:
            return PrefetchResponse(outcome=PrefetchOutcome.PREFETCH_OUTCOME_NOTHING)
        request = PrefetchRequest(
            request_id=request_id,
            collections=options.collections,
            query_prefix=prefix,
            top_k=options.top_k or self._settings.retrieval_top_k,
            rag_prefetch_ratio=ratio,
        )
        response = await self._rag.unary(
            f"{_SERVICE}Prefetch", request.SerializeToString(), timeout_s=timeout_s, metadata=metadata
        )
        return PrefetchResponse.FromString(response)

    def _ratio(self) -> float:
        return (self._regimes.now() if self._regimes is not None else self._settings).rag_prefetch_ratio

    async def cancel_prefetch(self, request_id: str, metadata: InnerMetadata) -> None:
        """Drop a prefetch that nobody will use. Raises Unavailable, MeshError."""
        if self._rag is None:
            return
        await self._rag.unary(
            f"{_SERVICE}CancelPrefetch",
            CancelPrefetchRequest(request_id=request_id).SerializeToString(),
            timeout_s=self.timeout_s(self._settings.retrieval_timeout_ms / 1000),
            metadata=metadata,
        )

    def timeout_s(self, remaining_s: float) -> float:
        """Time for one call: the configured one, or what a request has left."""
        return max(0.001, min(self._settings.retrieval_timeout_ms / 1000, remaining_s))

    async def _list(self, metadata: InnerMetadata, timeout_s: float) -> dict[str, str]:
        response = ListCollectionsResponse.FromString(
            await self._require().unary(
                f"{_SERVICE}ListCollections",
                ListCollectionsRequest().SerializeToString(),
                timeout_s=timeout_s,
                metadata=metadata,
            )
        )
        return {info.collection: info.index_stamp for info in response.collections}

    def _require(self) -> Dependency:
        if self._rag is None:
            raise Unavailable("rag")
        return self._rag


def _pick(named: Sequence[str], known: Mapping[str, str]) -> Collections:
    """The named ones of those that are known with their versions, or all of them."""
    names = tuple(sorted(set(named) or known))
    return Collections(names, tuple(known[name] for name in names if name in known))
