"""What requests ask of the cache service, as its parts read it: messages of `cache.proto` without protobuf. Pure."""

from typing import NamedTuple


class AdmitAsked(NamedTuple):
    """An AdmitRequest."""

    request_id: str
    cache_key: bytes
    reserve_tokens: int
    lease_ms: int
    max_age_ms: int
    no_lease: bool
    rate_share: float
    reservation_ms: int


class Settlement(NamedTuple):
    """A SettleRequest: what a request used, and what it adds to the tenant's usage of the day; no counter is 0."""

    request_id: str
    tokens: int
    counts: dict[str, int] | None = None


class CommitAsked(NamedTuple):
    """A CommitRequest."""

    cache_key: bytes
    fencing_token: int
    chunk: bytes
    is_complete: bool
    ttl_ms: int
    model: str
    is_all: bool


class EntryAsked(NamedTuple):
    """A BatchEntry. What is None was not set."""

    principal: bytes
    admit: AdmitAsked | None
    settle: Settlement | None
    commit: CommitAsked | None
