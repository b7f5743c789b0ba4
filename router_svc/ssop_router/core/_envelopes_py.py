"""The twin of `_envelopes.pyx`, for where that is not built, and what it is held to: protobuf does the work."""

from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1.cache_pb2 import (
    AdmitRequest,
    AdmitResponse,
    BatchEntry,
    BatchOutcome,
    CommitRequest,
    RunBatchRequest,
    RunBatchResponse,
    SettleRequest,
)
from ssop.v1.mesh_pb2 import Usage
from ssop.v1.usage_pb2 import RequestCounts
from ssop_router.core.envelope import Admitted, Outcome

_NUMBERS: Final = {field.name: field.number for field in BatchOutcome.DESCRIPTOR.fields} | {None: 0}


def write_admission(  # noqa: PLR0917 - the fields of the message
    request_id: str,
    cache_key: bytes,
    reserve_tokens: int,
    lease_ms: int,
    max_age_ms: int,
    no_lease: bool,
    rate_share: float,
    reservation_ms: int,
) -> bytes:
    """An AdmitRequest. Raises ValueError or OverflowError for numbers that it does not hold."""
    return AdmitRequest(
        request_id=request_id,
        cache_key=cache_key,
        reserve_tokens=reserve_tokens,
        lease_ms=lease_ms,
        max_age_ms=max_age_ms,
        no_lease=no_lease,
        rate_share=rate_share,
        reservation_ms=reservation_ms,
    ).SerializeToString()


def write_settlement(request_id: str, usage: bytes, counts: bytes) -> bytes:
    """A SettleRequest with a Usage and RequestCounts."""
    return SettleRequest(
        request_id=request_id, usage=Usage.FromString(usage), counts=RequestCounts.FromString(counts)
    ).SerializeToString()


def write_commit(  # noqa: PLR0917 - the fields of the message
    cache_key: bytes, fencing_token: int, chunk: bytes, is_complete: bool, model: str, is_all: bool
) -> bytes:
    """A CommitRequest. Raises ValueError or OverflowError for a token that it does not hold."""
    return CommitRequest(
        cache_key=cache_key,
        fencing_token=fencing_token,
        chunk=chunk,
        is_complete=is_complete,
        model=model,
        is_all=is_all,
    ).SerializeToString()


def write_batch(entries: Sequence[tuple[bytes, int, bytes, bytes | None]]) -> bytes:
    """A RunBatchRequest of entries: principal, number of the work's field in BatchEntry, work, and commit or None."""
    request = RunBatchRequest()
    for principal, number, work, commit in entries:
        entry = request.entries.add(principal=principal)
        if number == BatchEntry.ADMIT_FIELD_NUMBER:
            entry.admit.CopyFrom(AdmitRequest.FromString(work))
        else:
            entry.settle.CopyFrom(SettleRequest.FromString(work))
        if commit is not None:
            entry.commit.CopyFrom(CommitRequest.FromString(commit))
    return request.SerializeToString()


def read_admitted(message: bytes) -> Admitted:
    """What an AdmitResponse says. Raises ValueError for one that can't be read."""
    try:
        return _admitted(AdmitResponse.FromString(message))
    except DecodeError as error:
        raise ValueError("a reply that can't be read") from error


def read_outcomes(message: bytes) -> list[Outcome]:
    """What a RunBatchResponse says. Raises ValueError for one that can't be read."""
    try:
        outcomes = RunBatchResponse.FromString(message).outcomes
    except DecodeError as error:
        raise ValueError("a reply that can't be read") from error
    return [
        Outcome(
            _NUMBERS[outcome.WhichOneof("outcome")],
            _admitted(outcome.admitted) if outcome.HasField("admitted") else None,
            outcome.status,
            _NUMBERS[outcome.WhichOneof("end")],
            outcome.commit_status,
        )
        for outcome in outcomes
    ]


def _admitted(response: AdmitResponse) -> Admitted:
    return Admitted(
        response.outcome,
        response.fencing_token,
        response.answer.SerializeToString(),
        response.limits.SerializeToString(),
    )
