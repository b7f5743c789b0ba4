"""What stands in the envelopes that travel between a router and its cache service."""

from typing import NamedTuple

from ssop.v1.cache_pb2 import CacheOutcome


class Admitted(NamedTuple):
    """An AdmitResponse. `answer` is a StoredAnswer and `limits` are TenantLimits, as they came; empty: none."""

    outcome: CacheOutcome.ValueType = CacheOutcome.CACHE_OUTCOME_UNSPECIFIED
    fencing_token: int = 0
    answer: bytes = b""
    limits: bytes = b""


class Outcome(NamedTuple):
    """A BatchOutcome: the numbers of what is set of its two choices, 0 for nothing, and what that says."""

    number: int
    admitted: Admitted | None
    status: bytes
    end: int
    end_status: bytes


ADMITTED, SETTLED, STATUS, TOO_LARGE, COMMITTED, COMMIT_STATUS = range(1, 7)
"""The fields of a BatchOutcome."""
