"""Section `router` of `ssop.toml`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ssop_chassis.schedule import ProfileSettings
from ssop_chassis.settings import Settings
from ssop_router.canned import CannedSettings
from ssop_router.core.arrival import Timing
from ssop_router.core.cascade import CascadeSettings
from ssop_router.discovery_settings import DiscoveryTable
from ssop_router.health_settings import HealthTable
from ssop_router.node_sources import is_dns, read_dns
from ssop_router.policy_settings import PolicySettings, TierWord
from ssop_router.similar_settings import SimilarSettings


class NodeSettings(Settings):
    """A node. `tiers` speak only until its first status has arrived."""

    address: str = Field(
        min_length=1,
        description="Address of an inference service: host:port or unix:/path. dns:///host:port: all of the name's.",
    )
    tiers: list[TierWord] = Field(default=[], description="Tiers expected of it before its first status; none: any.")


class RouterProfile(ProfileSettings):
    """A `[[router.profiles]]` table; what is absent stays as the section has it."""

    rag_prefetch_ratio: float | None = Field(None, ge=0, le=1, description="See `[router]`.")
    full_share: float | None = Field(None, ge=0, le=1, description="Share of requests that the full tier is to have.")
    max_in_flight: int | None = Field(None, gt=0, description="See `[router]`.")


class RouterSettings(PolicySettings):
    """What a router is told."""

    listen: list[str] = Field(default=["127.0.0.1:7300"], min_length=1, description="Addresses to listen on.")
    nodes: list[NodeSettings] = Field(
        default=[], description="The nodes, as addresses or tables; needed unless `discovery` finds some."
    )
    discovery: DiscoveryTable = Field(
        default_factory=DiscoveryTable, description="Nodes that join and leave at run time: a table. See docs/nodes.md."
    )
    cache_address: str = Field("", description="Address of the cache service; empty: none, and no limits.")
    rag_address: str = Field("", description="Address of the retrieval service; empty: none.")
    keys_file: Path = Field(description="API keys that hold on this router whatever the mesh's store says.")
    keys_poll_ms: int = Field(
        1000, gt=0, le=4000, description="How often the keys file and the mesh's keys are looked at for changes."
    )
    keys_timeout_ms: int = Field(500, gt=0, le=900, description="Time for reading or changing the mesh's keys.")
    keys_max_age_ms: int = Field(
        3_600_000, gt=0, description="How long the mesh's keys are trusted while their store does not answer."
    )
    health: HealthTable = Field(
        default_factory=HealthTable,
        description="When nodes leave the rotation and how they come back: a table.",
    )
    canned: list[CannedSettings] = Field(
        default=[], description="Documents for when nothing else is left: `schema_file`, `document_file`, `tenant`."
    )
    similar: list[SimilarSettings] = Field(
        default=[],
        description="Who takes answers to similar questions: tables with `tenant`. See docs/caching.md.",
    )
    similar_timeout_ms: int = Field(150, gt=0, description="Time for finding a similar answer.")
    watch_restart_ms: int = Field(300_000, gt=0, description="How long one status stream lasts before it is renewed.")
    nodes_wait_ms: int = Field(
        1_000, ge=0, description="How long a router that starts waits for every node's status before it serves."
    )
    reconnect_min_ms: int = Field(100, gt=0, description="First back-off after a status stream was lost.")
    reconnect_max_ms: int = Field(5_000, gt=0, description="Longest back-off after a status stream was lost.")
    first_field_timeout_ms: int = Field(10_000, gt=0, description="Time for the first field; later is a hard failure.")
    stall_timeout_ms: int = Field(
        30_000,
        ge=0,
        description="Silence of a node after a field that is a hard failure; `linger_ms` of a request is added. 0: any"
        " length is borne.",
    )
    continue_max_bytes: int = Field(
        262_144,
        ge=0,
        le=2_097_152,
        description="Largest beginning of a document that another node goes on with after a failure. 0: none.",
    )
    continue_wait_ms: int = Field(
        10_000, ge=0, description="How long a document that was begun waits for a node that can go on with it."
    )
    default_timeout_ms: int = Field(30_000, gt=0, description="Time for a request on a session that names none.")
    max_timeout_ms: int = Field(300_000, gt=0, description="Longest time for a request.")
    hop_margin_ms: int = Field(20, ge=0, description="What each inner call's deadline is shorter by.")
    admission_timeout_ms: int = Field(50, gt=0, description="Time for admission and cache look-up.")
    retrieval_timeout_ms: int = Field(500, gt=0, description="How long a request waits for its passages.")
    collections_ttl_ms: int = Field(2_000, ge=0, description="How long a tenant's list of collections is trusted.")
    first_field_target_ms: int = Field(
        1_500, gt=0, description="Wait for first fields above which the dynamic `rate_limit_mode` lowers the rate."
    )
    routers: int = Field(
        1, ge=1, le=10_000, description="Router processes; each holds that share of a limit while Redis is gone."
    )
    unknown_limit_rps: float = Field(
        50.0,
        ge=0,
        le=100_000,
        description="Requests per second and tenant, mesh-wide, while the cache service never said the limit. 0: any.",
    )
    unchecked_budget: Literal["refuse", "serve"] = Field(
        "refuse",
        description="Requests of tenants with a token budget while nobody can count: refused, or served and flagged.",
    )
    promise_wait_ms: int = Field(
        5_000,
        ge=0,
        le=60_000,
        description="How long a request waits for admission that serving without would break a budget or ask twice.",
    )
    settle_timeout_ms: int = Field(1_000, gt=0, description="Time for settling and storing after an answer.")
    skip_ms: int = Field(1_000, gt=0, description="How long a service that failed three times in a row is not asked.")
    lease_ms: int = Field(
        2_000, gt=0, le=600_000, description="How long a lease lasts without a sign of life; then another takes over."
    )
    reservation_ms: int = Field(
        10_000, gt=0, le=600_000, description="How long reserved tokens stay reserved without a sign of life."
    )
    append_interval_ms: int = Field(250, gt=0, description="How often a generation looks for followers.")
    max_stored_bytes: int = Field(1_048_576, gt=0, description="Largest answer that is stored.")
    reserve_output_tokens: int = Field(1_024, gt=0, description="Output tokens to reserve where the request says none.")
    max_prompt_bytes: int = Field(2_097_152, gt=0, description="Largest prompt, parts and schema included.")
    max_in_flight: int = Field(512, gt=0, description="Requests at the same time; more are OVERLOADED.")
    max_document_calls: int = Field(32, gt=0, description="Calls about documents at the same time; more: OVERLOADED.")
    retrieval_top_k: int = Field(4, ge=1, le=32, description="Passages where the request names no number.")
    rag_prefetch_ratio: float = Field(
        0.3, ge=0, le=1, description="Share of the candidate budget (128 passages) that a prefetch fetches. 0: none."
    )
    prefetch_words: int = Field(
        10,
        gt=0,
        description="Tokens (words; single characters of Chinese, Japanese, Korean) that start a prefetch.",
    )
    prefetch_again_words: int = Field(15, ge=0, description="Tokens with which it is issued once more. 0: never.")
    prefetch_wait_ms: int = Field(500, gt=0, description="Time after the first byte that starts a prefetch anyway.")
    prefetch_pause_ms: int = Field(
        300,
        ge=0,
        description="Pause (and 1.5 times the longest so far) after which all of the input is prefetched. 0: never.",
    )
    retrieval_ahead: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Retrieve while the request is admitted and looked up; `auto`: for tenants where few are hits.",
    )
    cascade_fields: int = Field(2, ge=1, le=16, description="Choices of a lite answer that a cascade judges.")
    cascade_min_confidence: float = Field(
        0.6, ge=0, le=1, description="Confidence in a choice below which full takes over."
    )
    cascade_text_tokens: int = Field(16, ge=1, le=256, description="Tokens of free text that a cascade judges.")
    cascade_min_text_confidence: float = Field(
        0.5, ge=0, le=1, description="Mean confidence in free text below which full takes over."
    )
    cascade_window_ms: int = Field(
        2_000, gt=0, description="Longest time, and at most half of the request's, that a cascade waits for evidence."
    )
    cascade_held_bytes: int = Field(
        65_536, gt=0, le=1_048_576, description="Most of a lite answer that is held back unjudged."
    )
    profiles: list[RouterProfile] = Field(
        default=[], description="Settings for some time; the first that holds counts. See docs/prefetch.md."
    )
    session_idle_ms: int = Field(300_000, gt=0, description="Time without a message after which a session ends.")
    session_max_requests: int = Field(64, gt=0, description="Requests in flight on one session (batch_size).")
    resume_max_entries: int = Field(256, gt=0, description="Answers kept for reconnects.")
    resume_max_bytes: int = Field(67_108_864, gt=0, description="Memory for answers kept for reconnects.")
    resume_entry_bytes: int = Field(4_194_304, gt=0, description="Largest answer kept for a reconnect.")
    schema_cache_size: int = Field(256, gt=0, description="Compiled schemas that are kept.")
    conversations_size: int = Field(10_000, gt=0, description="Conversations whose tier is remembered.")
    trace_requests: int = Field(
        512, ge=0, le=100_000, description="Requests whose frame heads and times are kept for `ssop trace`. 0: none."
    )
    decision_log: str = Field("", description="File to which every decision and its outcome is written; empty: none.")
    decision_log_text: bool = Field(False, description="The decision log holds the users' texts.")
    decision_log_max_bytes: int = Field(
        67_108_864, ge=4_096, description="Size at which the decision log is set aside as `.1`, over the last one."
    )

    @field_validator("nodes", mode="before")
    @classmethod
    def _read_addresses(cls, value: Any) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, str):
            return value
        return [{"address": node} if isinstance(node, str) else node for node in value]

    @model_validator(mode="after")
    def _check_nodes(self) -> Self:
        for node in self.nodes:
            if is_dns(node.address):
                read_dns(node.address)
        if not self.nodes and not self.discovery.has_leases:
            raise ValueError("there are no nodes: name them in `nodes`, or set discovery.has_leases")
        if self.discovery.has_leases and not self.cache_address:
            raise ValueError("discovery.has_leases needs a cache_address: leases are kept there")
        return self

    @property
    def static_nodes(self) -> list[NodeSettings]:
        """Those that stay."""
        return [node for node in self.nodes if not is_dns(node.address)]

    def prefetch_timing(self) -> Timing:
        """When prefetches of a text that arrives in pieces are due."""
        return Timing(self.prefetch_words, self.prefetch_again_words, self.prefetch_wait_ms, self.prefetch_pause_ms)

    def cascade(self) -> CascadeSettings:
        """The part that the cascade's core reads."""
        return CascadeSettings(
            fields=self.cascade_fields,
            text_tokens=self.cascade_text_tokens,
            min_confidence=self.cascade_min_confidence,
            min_text_confidence=self.cascade_min_text_confidence,
        )
