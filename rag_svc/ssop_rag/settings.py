"""Section `rag` of the settings."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from ssop_chassis.schedule import ProfileSettings
from ssop_chassis.settings import Settings
from ssop_rag.core.ranking import Ranker, RankerChoice
from ssop_rag.reranking import RerankLimits


class RagProfile(ProfileSettings):
    """A `[[rag.profiles]]` table; what is absent stays as the section has it."""

    rag_max_concurrent: int | None = Field(None, ge=0, description="See `[rag]`.")
    prefetch_budget: int | None = Field(None, ge=0, description="See `[rag]`.")


class RagSettings(Settings):
    """The RAG service."""

    listen: list[str] = Field(["127.0.0.1:7330"], description="Addresses: `host:port` or `unix:/path.sock`.")
    directory: Path = Field(description="Folder of the index; made if absent. One process at a time.")
    embedder: str = Field(
        "e5", pattern="^e5$", description="What makes vectors: `e5` is multilingual-e5-small, 4 bits."
    )
    embedder_provider: str = Field(
        "cpu",
        pattern="^(cpu|cuda)$",
        description="Where it runs. `cuda` needs the extra `gpu`; without CUDA it is the CPU, and a warning says so.",
    )
    embedder_precision: str = Field(
        "int8",
        pattern="^(int8|float32)$",
        description="Of what its weights are multiplied with. `float32` costs up to five times as much CPU, and is "
        "an embedder of its own: collections are put again.",
    )
    embedder_runtime: str = Field(
        "auto",
        pattern="^(auto|onnx)$",
        description="`auto`: compiled code of its own for `int8` on a CPU with AVX-512 VNNI, ONNX Runtime elsewhere. "
        "`onnx`: ONNX Runtime always. The vectors are the same to four digits.",
    )
    ranker: Ranker = Field(
        Ranker.HYBRID,
        description="What orders passages: `vector`, `bm25`, or `hybrid`, which fuses both by reciprocal rank.",
    )
    collection_rankers: dict[str, Ranker] = Field(
        default_factory=dict, description="By collection, of any tenant: another ranker than `ranker`."
    )
    store: str = Field(
        "embedded",
        pattern="^(embedded|milvus)$",
        description="Where documents live: `embedded` is RocksDB in `directory`; `milvus` needs the extra `milvus`.",
    )
    milvus_uri: str = Field("http://127.0.0.1:19530", description="The server of store `milvus`.")
    milvus_token_file: Path | None = Field(None, description="File with `user:password` or a token; mode 0600.")
    milvus_prefix: str = Field(
        "ssop", pattern="^[A-Za-z][A-Za-z0-9_]{0,31}$", description="What the names of its collections begin with."
    )
    milvus_index: str = Field(
        "FLAT",
        pattern="^(FLAT|HNSW|AUTOINDEX)$",
        description="Index of the vectors. `FLAT` compares all of a tenant's; the others find most of the best.",
    )
    milvus_timeout_ms: int = Field(2_000, gt=0, description="Deadline of each call of the server.")
    milvus_threads: int = Field(16, ge=1, le=256, description="Calls of the server at a time.")
    rerank_url: str = Field(
        "",
        description="A reranker, `POST` as Cohere's or vLLM's `/v1/rerank`. Empty: passages stay as they are ranked.",
    )
    rerank_model: str = Field("", description="The model that it is asked for.")
    rerank_key_file: Path | None = Field(None, description="File with its key, sent as a bearer token; mode 0600.")
    rerank_depth: int = Field(32, ge=1, le=128, description="Passages that it orders anew.")
    rerank_timeout_ms: int = Field(
        300, gt=0, description="Deadline; after it the ranker's order stands, and is flagged."
    )
    rerank_concurrent: int = Field(8, ge=1, le=256, description="Calls of it at a time; more queries go without.")
    threads: int = Field(
        default_factory=lambda: max(1, (os.cpu_count() or 2) - 1),
        ge=1,
        le=256,
        description="Threads that embed; one core each. Default: all cores but one.",
    )
    rag_max_concurrent: int = Field(2, ge=0, description="Prefetches of one tenant that run at a time. 0: none.")
    rag_prefetch_ratio: float = Field(
        0.3, ge=0, le=1, description="Share of the candidate budget (128 passages) that a prefetch fetches by default."
    )
    rag_prefetch_mode: Literal["lossless", "lossy"] = Field(
        "lossless",
        description="`lossy`: what was prefetched answers, though the index may hold better; said in each answer.",
    )
    prefetch_threads: int = Field(1, ge=1, le=64, description="Threads that embed prefetches, apart from `threads`.")
    prefetch_max_stretch: float = Field(
        10.0,
        ge=0,
        description="Time over CPU time of an embedding from which the machine is busy, and none start. 0: never.",
    )
    prefetch_queue: int = Field(4, ge=0, description="Prefetches that may wait for a thread; more are shed.")
    prefetch_ttl_ms: int = Field(5_000, gt=0, description="How long a prefetch waits for its request.")
    prefetch_budget: int = Field(600, ge=0, description="Prefetches that a tenant may start in a window. 0: no limit.")
    prefetch_window_ms: int = Field(60_000, gt=0, description="The window of `prefetch_budget`.")
    prefetch_waste_weight: float = Field(
        0.25,
        ge=0,
        description="What wasted work counts against saved time; prefetches that save less are off. 0: never off.",
    )
    prefetch_off_ms: int = Field(60_000, gt=0, description="How long they are off first, before some are tried again.")
    query_memo: int = Field(4_096, ge=0, description="Vectors of queries that are kept, 1.5 KB each.")
    profiles: list[RagProfile] = Field(default=[], description="Settings for some time; the first that holds counts.")
    max_queue: int = Field(64, ge=0, description="Calls that may wait for a thread; more are OVERLOADED.")
    max_document_bytes: int = Field(262_144, gt=0, description="Largest document; larger ones are refused one by one.")
    max_tenant_passages: int = Field(
        200_000,
        gt=0,
        description="Passages that a tenant may keep; about 2.5 KB of memory each. More: QUOTA_EXHAUSTED.",
    )
    snapshots_directory: Path | None = Field(
        None, description="Folder of snapshots. Default: beside the index, with `-snapshots` added to its name."
    )
    max_snapshots: int = Field(16, ge=0, description="Snapshots that a tenant may keep.")
    passage_chars: int = Field(480, ge=64, le=1_000, description="Longest passage, title included, in characters.")
    overlap_chars: int = Field(80, ge=0, le=240, description="What a passage repeats of the one before, in characters.")

    @property
    def rankers(self) -> RankerChoice:
        """The ranker of each collection."""
        return RankerChoice(self.ranker, self.collection_rankers)

    @property
    def rerank_limits(self) -> RerankLimits:
        """Bounds of the reranker."""
        return RerankLimits(self.rerank_depth, self.rerank_timeout_ms / 1000, self.rerank_concurrent)
