"""The slow twin of `_messages`: the same by protobuf and hiredis.

It is the oracle of the tests, reads what is unusual, and is what an installation without compiled code runs on.
"""

from hiredis import pack_command

from ssop.v1.cache_pb2 import (
    AdmitRequest,
    AdmitResponse,
    BatchOutcome,
    CommitRequest,
    CommitResponse,
    RunBatchRequest,
    RunBatchResponse,
    SettleRequest,
    SettleResponse,
    TenantLimits,
)
from ssop_cache.core.asked import AdmitAsked, CommitAsked, EntryAsked, Settlement
from ssop_cache.core.usage import count_request


def read_admit(request: AdmitRequest) -> AdmitAsked:
    """What an AdmitRequest asks."""
    return AdmitAsked(
        request.request_id,
        request.cache_key,
        request.reserve_tokens,
        request.lease_ms,
        request.max_age_ms,
        request.no_lease,
        request.rate_share,
        request.reservation_ms,
    )


def read_settle(request: SettleRequest) -> Settlement:
    """What a SettleRequest asks."""
    counts = None
    if request.HasField("counts"):
        counted = count_request(request.usage, request.counts)
        counts = {name: amount for name, amount in counted.items() if amount}
    used = request.usage.input_tokens + request.usage.output_tokens
    return Settlement(request.request_id, used, counts)


def read_commit(request: CommitRequest) -> CommitAsked:
    """What a CommitRequest asks."""
    return CommitAsked(
        request.cache_key,
        request.fencing_token,
        request.chunk,
        request.is_complete,
        request.ttl_ms,
        request.model,
        request.is_all,
    )


def read_batch(message: bytes) -> list[EntryAsked]:
    """The entries of a RunBatchRequest. Raises DecodeError."""
    return [
        EntryAsked(
            entry.principal,
            read_admit(entry.admit) if entry.HasField("admit") else None,
            read_settle(entry.settle) if entry.HasField("settle") else None,
            read_commit(entry.commit) if entry.HasField("commit") else None,
        )
        for entry in RunBatchRequest.FromString(message).entries
    ]


def write_admitted(outcome: int, fence: int, budget_left: int, limits: bytes) -> bytes:
    """The BatchOutcome of one that is let in without a stored answer. `budget_left` -1: there is no budget."""
    response = AdmitResponse(outcome=outcome, fencing_token=fence, limits=TenantLimits.FromString(limits))  # type: ignore[arg-type]
    if budget_left >= 0:
        response.budget_left_tokens = budget_left
    return bytes(BatchOutcome(admitted=response).SerializeToString())


def write_concluded(charged_tokens: int, *, is_committed: bool) -> bytes:
    """The BatchOutcome of one that is settled, and whose generation has ended with it, where there was one."""
    outcome = BatchOutcome(settled=SettleResponse(charged_tokens=charged_tokens))
    if is_committed:
        outcome.committed.CopyFrom(CommitResponse())
    return outcome.SerializeToString()


def write_batch(outcomes: list[bytes]) -> bytes:
    """The RunBatchResponse of BatchOutcomes."""
    return RunBatchResponse(outcomes=[BatchOutcome.FromString(one) for one in outcomes]).SerializeToString()


def pack(words: tuple[str | bytes | int, ...]) -> bytes:
    """A command as Redis reads it (RESP)."""
    # It takes a tuple of any length, whatever its stub says.
    packed: bytes = pack_command(words)  # type: ignore[arg-type]
    return packed
