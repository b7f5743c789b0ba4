"""What scripts are asked and say, with a name for each part."""

from typing import NamedTuple

from ssop_cache.core import scripts
from ssop_cache.core.scripts import Outcome, Reply


class Admit(NamedTuple):
    """A `scripts.Admit`."""

    request_id: str
    cache_key: bytes
    tokens: int
    is_found: bool = False
    wants_lease: bool = True
    seen_fence: int = 0


class Admission(NamedTuple):
    """A `scripts.Admission`."""

    outcome: Outcome
    retry_ms: int
    fence: int
    budget_left: int


class Ending(NamedTuple):
    """A `scripts.Ending`."""

    cache_key: bytes
    fence: int
    is_complete: bool = False
    is_stored: bool = False


def read_admissions(reply: Reply) -> list[Admission]:
    """The reply of `admit_requests`."""
    return [Admission(*one) for one in scripts.parse_admissions(reply)]
