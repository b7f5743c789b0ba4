from collections.abc import Sequence

from ssop_router.core.envelope import Admitted, Outcome

def write_admission(
    request_id: str,
    cache_key: bytes,
    reserve_tokens: int,
    lease_ms: int,
    max_age_ms: int,
    no_lease: bool,
    rate_share: float,
    reservation_ms: int,
) -> bytes: ...
def write_settlement(request_id: str, usage: bytes, counts: bytes) -> bytes: ...
def write_commit(
    cache_key: bytes, fencing_token: int, chunk: bytes, is_complete: bool, model: str, is_all: bool
) -> bytes: ...
def write_batch(entries: Sequence[tuple[bytes, int, bytes, bytes | None]]) -> bytes: ...
def read_admitted(message: bytes) -> Admitted: ...
def read_outcomes(message: bytes) -> list[Outcome]: ...
