"""Envelopes to the cache service are protobuf's own: written by hand and read by it, and the other way round."""

from types import ModuleType

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given
from hypothesis import strategies as st

from ssop.v1.cache_pb2 import (
    AdmitRequest,
    AdmitResponse,
    BatchEntry,
    BatchOutcome,
    CommitRequest,
    CommitResponse,
    RunBatchRequest,
    RunBatchResponse,
    SettleRequest,
    SettleResponse,
    StoredAnswer,
    TenantLimits,
)
from ssop.v1.mesh_pb2 import Usage
from ssop.v1.usage_pb2 import RequestCounts
from ssop_router.core import _envelopes, _envelopes_py

WAYS = pytest.mark.parametrize("way", [_envelopes, _envelopes_py], ids=["compiled", "twin"])
UINT32 = st.sampled_from([0, 1, 127, 128, 2**32 - 1]) | st.integers(0, 2**32 - 1)
UINT64 = UINT32 | st.integers(0, 2**64 - 1)
TEXTS = st.text(max_size=200).filter(lambda text: text.isprintable())
BLOBS = st.binary(max_size=300)
ADMISSIONS = st.builds(
    AdmitResponse,
    outcome=st.integers(0, 6),
    answer=st.none() | st.builds(StoredAnswer, chunk=BLOBS, age_ms=UINT64, model=TEXTS),
    fencing_token=UINT64,
    budget_left_tokens=st.none() | UINT64,
    limits=st.none() | st.builds(TenantLimits, max_rps=st.floats(0, 1e6), burst=UINT32, has_budget=st.booleans()),
)
OUTCOMES = st.one_of(
    st.builds(BatchOutcome, admitted=ADMISSIONS),
    st.builds(BatchOutcome, is_too_large=st.booleans()),
    st.builds(lambda status, end: BatchOutcome(status=status, commit_status=end), BLOBS, BLOBS),
    st.builds(lambda: BatchOutcome(settled=SettleResponse(charged_tokens=3), committed=CommitResponse())),
    st.just(BatchOutcome()),
)


@WAYS
@given(st.tuples(TEXTS, BLOBS, UINT32, UINT32, UINT64, st.booleans(), st.floats(0, 1), UINT32))
def test_an_admission_is_protobufs_own(
    way: ModuleType, values: tuple[str, bytes, int, int, int, bool, float, int]
) -> None:
    name, key, reserve_tokens, lease_ms, max_age_ms, no_lease, rate_share, reservation_ms = values
    request = AdmitRequest(
        request_id=name,
        cache_key=key,
        reserve_tokens=reserve_tokens,
        lease_ms=lease_ms,
        max_age_ms=max_age_ms,
        no_lease=no_lease,
        rate_share=rate_share,
        reservation_ms=reservation_ms,
    )
    assert way.write_admission(*values) == request.SerializeToString(deterministic=True)


@WAYS
@given(TEXTS, UINT32, UINT32, st.booleans())
def test_a_settlement_is_protobufs_own(way: ModuleType, name: str, tokens: int, more: int, is_failed: bool) -> None:
    usage, counts = Usage(input_tokens=tokens, output_tokens=more), RequestCounts(is_failed=is_failed, prefetches=more)
    written = way.write_settlement(name, usage.SerializeToString(), counts.SerializeToString())
    assert SettleRequest.FromString(written) == SettleRequest(request_id=name, usage=usage, counts=counts)


@WAYS
@given(st.tuples(BLOBS, UINT64, BLOBS, st.booleans(), TEXTS, st.booleans()))
def test_a_commit_is_protobufs_own(way: ModuleType, values: tuple[bytes, int, bytes, bool, str, bool]) -> None:
    key, token, chunk, is_complete, model, is_all = values
    request = CommitRequest(
        cache_key=key, fencing_token=token, chunk=chunk, is_complete=is_complete, model=model, is_all=is_all
    )
    assert way.write_commit(*values) == request.SerializeToString(deterministic=True)


@WAYS
@given(st.lists(st.tuples(BLOBS, st.booleans(), TEXTS, st.none() | BLOBS), max_size=40))
def test_a_batch_is_protobufs_own(way: ModuleType, some: list[tuple[bytes, bool, str, bytes | None]]) -> None:
    expected, entries = RunBatchRequest(), []
    for principal, is_admission, name, chunk in some:
        entry = expected.entries.add(principal=principal)
        work: Message = AdmitRequest(request_id=name) if is_admission else SettleRequest(request_id=name)
        (entry.admit if is_admission else entry.settle).MergeFrom(work)  # type: ignore[arg-type]
        (entry.admit if is_admission else entry.settle).SetInParent()
        commit = None
        if chunk is not None:
            entry.commit.CopyFrom(CommitRequest(cache_key=b"k", chunk=chunk, is_complete=True))
            commit = entry.commit.SerializeToString()
        number = BatchEntry.ADMIT_FIELD_NUMBER if is_admission else BatchEntry.SETTLE_FIELD_NUMBER
        entries.append((principal, number, work.SerializeToString(), commit))
    assert RunBatchRequest.FromString(way.write_batch(entries)) == expected


@WAYS
def test_entries_that_come_one_by_one_are_written_as_those_that_are_there(way: ModuleType) -> None:
    entries = [(b"p", BatchEntry.SETTLE_FIELD_NUMBER, SettleRequest(request_id="r").SerializeToString(), None)] * 3
    assert way.write_batch(iter(entries)) == way.write_batch(entries)


@given(ADMISSIONS)
def test_both_read_the_same_admission(response: AdmitResponse) -> None:
    message = response.SerializeToString()
    assert _envelopes.read_admitted(message) == _envelopes_py.read_admitted(message)


@given(st.lists(OUTCOMES, max_size=40))
def test_both_read_the_same_outcomes(outcomes: list[BatchOutcome]) -> None:
    message = RunBatchResponse(outcomes=outcomes).SerializeToString()
    assert _envelopes.read_outcomes(message) == _envelopes_py.read_outcomes(message)


@given(
    BLOBS | st.lists(OUTCOMES, max_size=3).map(lambda some: RunBatchResponse(outcomes=some).SerializeToString()[:-1])
)
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x80" * 12)
def test_what_is_damaged_is_said_to_be(message: bytes) -> None:
    for read, kind in ((_envelopes.read_outcomes, RunBatchResponse), (_envelopes.read_admitted, AdmitResponse)):
        try:
            read(message)
        except ValueError:
            with pytest.raises(DecodeError):
                kind.FromString(message)


@WAYS
def test_numbers_that_a_field_does_not_hold_are_refused(way: ModuleType) -> None:
    with pytest.raises((ValueError, OverflowError)):
        way.write_admission("r", b"", 2**32, 0, 0, False, 0.0, 0)
    with pytest.raises((ValueError, OverflowError)):
        way.write_admission("r", b"", -1, 0, 0, False, 0.0, 0)


@WAYS
def test_fields_of_a_later_version_are_passed_over(way: ModuleType) -> None:
    later = b"\x98\x06\x07" + b"\xa2\x06\x02hi" + b"\xa9\x06" + bytes(8) + b"\xb5\x06" + bytes(4)
    message = AdmitResponse(fencing_token=7).SerializeToString() + later
    assert way.read_admitted(message).fencing_token == 7
