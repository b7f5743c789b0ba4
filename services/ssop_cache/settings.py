"""Section `cache` of the settings."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ssop_cache.core.scripts import Limits
from ssop_cache.redis_settings import RedisSettings


class CacheSettings(RedisSettings):
    """What the cache service needs."""

    listen: list[str] = Field(
        ["127.0.0.1:7340"], min_length=1, description="Where it listens: host:port or unix:/path."
    )
    redis_timeout_ms: int = Field(
        50,
        ge=1,
        le=10_000,
        description="Most that a frozen or gone Redis costs a call; more where it answers slowly, up to 20 times.",
    )
    redis_connections: int = Field(
        16, ge=1, le=1024, description="Connections to each role; four times as many calls run (a cluster: as many)."
    )
    connection_wait_ms: int = Field(
        2000, ge=1, le=60_000, description="Longest wait for a free connection; then the call is OVERLOADED."
    )
    probe_interval_ms: int = Field(100, ge=10, description="How often an instance that failed is tried again.")
    answer_ttl_ms: int = Field(
        86_400_000, gt=0, description="How long an answer is kept, unless the commit says otherwise."
    )
    local_bytes: int = Field(
        67_108_864,
        ge=0,
        le=17_179_869_184,
        description="Memory for stored answers on this host, the level before Redis. 0: no such level.",
    )
    local_directory: Path | None = Field(
        None, description="Folder in which the host's answers survive restarts. Not given: they don't."
    )
    local_sync_ms: int = Field(
        100, ge=10, le=10_000, description="How often this host looks for answers that others dropped."
    )
    local_unsynced_ms: int = Field(
        600_000,
        ge=0,
        le=86_400_000,
        description="How long the host's answers are good without news of changes, while Redis is gone. 0: not at all.",
    )
    similar_entries: int = Field(
        1_000, ge=0, le=100_000, description="Questions of a tenant that similar ones find. Above it the oldest go."
    )
    max_answer_bytes: int = Field(1_048_576, gt=0, description="Larger answers are not stored; a metric counts them.")
    max_backlog_bytes: int = Field(2_097_152, gt=0, description="Most bytes of one generation that wait for followers.")
    max_followed: int = Field(256, gt=0, description="Generations followed at the same time; more are OVERLOADED.")
    rate_limit_mode: Literal["static", "dynamic"] = Field(
        default="static",
        description="`static`: the rate limit is max_rps, whatever happens. `dynamic`: it follows load, below max_rps.",
    )
    max_rps: float = Field(0.0, ge=0, le=100_000, description="Requests per second and tenant; 0 is no limit.")
    min_rps: float = Field(
        1.0, gt=0, le=100_000, description="Requests per second and tenant that `dynamic` leaves at the least."
    )
    ceiling_rps: float = Field(
        100.0, gt=0, le=100_000, description="What `dynamic` takes for max_rps where that is 0, which is no limit."
    )
    burst: int = Field(10, ge=1, le=1_000_000, description="Requests that may come at once when max_rps is set.")
    ended_keys_kept_ms: int = Field(
        2_592_000_000,
        ge=0,
        description="How long API keys are kept, and listed, after they were revoked or expired. 0: for ever.",
    )
    budget_tokens: int = Field(0, ge=0, le=2**48, description="Tokens per window and tenant; 0 is no budget.")
    budget_window_ms: int = Field(60_000, ge=100, le=2_678_400_000, description="Length of the budget's window.")
    is_role_checked: bool = Field(
        True,
        description="Ask both instances for their settings and refuse wrong ones. False where CONFIG is forbidden.",
    )

    @model_validator(mode="after")
    def _answers_fit_the_backlog(self) -> Self:
        if self.max_answer_bytes > self.max_backlog_bytes:
            raise ValueError("max_answer_bytes is larger than max_backlog_bytes: such an answer could not be followed")
        if self.rate_limit_mode == "dynamic" and self.min_rps > self.full_rps:
            raise ValueError("min_rps is larger than the rate that it is the least of: max_rps, or ceiling_rps")
        return self

    @property
    def full_rps(self) -> float:
        """Requests per second and tenant while nothing is too busy; 0 is no limit."""
        return self.max_rps or (self.ceiling_rps if self.rate_limit_mode == "dynamic" else 0.0)

    @property
    def limits(self) -> Limits:
        """The limits of every tenant while nothing is too busy."""
        return Limits(
            self.full_rps,
            self.burst,
            self.budget_tokens,
            self.budget_window_ms,
            min_rps=self.min_rps,
            is_dynamic=self.rate_limit_mode == "dynamic",
        )
