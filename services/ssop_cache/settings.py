"""Section `cache` of the settings."""

from typing import Literal, Self

from pydantic import Field, model_validator

from ssop_cache.core.scripts import Limits
from ssop_chassis.settings import Settings


class CacheSettings(Settings):
    """What the cache service needs. URLs are those of redis-py: `redis://`, `rediss://` or `unix://`."""

    listen: list[str] = Field(
        ["127.0.0.1:7340"], min_length=1, description="Where it listens: host:port or unix:/path."
    )
    state_url: str = Field(description="Redis for quotas, leases and logs: noeviction, AOF with appendfsync always.")
    cache_url: str = Field(description="Redis for stored answers: an allkeys policy, no persistence. Another instance.")
    redis_timeout_ms: int = Field(50, ge=1, le=10_000, description="Most that a frozen or gone Redis costs a call.")
    redis_connections: int = Field(16, ge=1, le=1024, description="Connections to each instance.")
    connection_wait_ms: int = Field(
        2000, ge=1, le=60_000, description="Longest wait for a free connection; then the call is OVERLOADED."
    )
    probe_interval_ms: int = Field(100, ge=10, description="How often an instance that failed is tried again.")
    answer_ttl_ms: int = Field(
        86_400_000, gt=0, description="How long an answer is kept, unless the commit says otherwise."
    )
    max_answer_bytes: int = Field(1_048_576, gt=0, description="Larger answers are not stored; a metric counts them.")
    max_backlog_bytes: int = Field(2_097_152, gt=0, description="Most bytes of one generation that wait for followers.")
    max_followed: int = Field(256, gt=0, description="Generations followed at the same time; more are OVERLOADED.")
    rate_limit_mode: Literal["static"] = Field(
        default="static", description="How the rate limit is found: `static` is max_rps and nothing else."
    )
    max_rps: float = Field(0.0, ge=0, le=100_000, description="Requests per second and tenant; 0 is no limit.")
    burst: int = Field(10, ge=1, le=1_000_000, description="Requests that may come at once when max_rps is set.")
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
        if self.state_url == self.cache_url:
            raise ValueError("state_url and cache_url are the same: one instance can't both evict and keep")
        return self

    @property
    def limits(self) -> Limits:
        """The static limits of every tenant."""
        return Limits(self.max_rps, self.burst, self.budget_tokens, self.budget_window_ms)
