"""The compiled messages and their twin read and write the same, whatever the bytes."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from ssop.v1.cache_pb2 import AdmitRequest, BatchEntry, CommitRequest, RunBatchRequest, SettleRequest, TenantLimits
from ssop.v1.mesh_pb2 import Tier, Usage
from ssop.v1.usage_pb2 import RequestCounts
from ssop_cache import _messages, _messages_py, messages

UINT32 = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 127, 128, 2**31])
UINT64 = st.integers(0, 2**64 - 1) | UINT32
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 9, 10, -1, -(2**63)])
NAMES = st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True) | st.text(max_size=5)
KEYS = st.binary(min_size=32, max_size=32) | st.binary(max_size=3)
USAGES = st.builds(Usage, input_tokens=UINT32, output_tokens=UINT32, cached_input_tokens=UINT32)
COUNTS = st.builds(
    RequestCounts,
    tier=st.sampled_from([*Tier.values(), 7]),
    is_cached=st.booleans(),
    is_degraded=st.booleans(),
    is_failed=st.booleans(),
    prefetches=UINT32,
    prefetch_hits=UINT32,
    prefetch_tokens=UINT32,
    discarded_usage=st.none() | st.none() | USAGES,
)
ADMITS = st.builds(
    AdmitRequest,
    request_id=NAMES,
    cache_key=KEYS,
    reserve_tokens=UINT32,
    lease_ms=UINT32,
    max_age_ms=UINT64,
    no_lease=st.booleans(),
    rate_share=st.floats(allow_nan=False),
    reservation_ms=UINT32,
)
SETTLES = st.builds(SettleRequest, request_id=NAMES, usage=st.none() | USAGES, counts=st.none() | COUNTS)
COMMITS = st.builds(
    CommitRequest,
    cache_key=KEYS,
    fencing_token=UINT64,
    chunk=st.binary(max_size=200),
    is_complete=st.booleans(),
    ttl_ms=UINT64,
    model=NAMES,
    is_all=st.booleans(),
)
ENTRIES = st.builds(BatchEntry, principal=st.binary(max_size=9), admit=ADMITS) | st.builds(
    BatchEntry, principal=st.binary(max_size=9), settle=st.none() | SETTLES, commit=st.none() | COMMITS
)
BATCHES = st.lists(ENTRIES, max_size=4).map(lambda entries: RunBatchRequest(entries=entries).SerializeToString())
WORDS = st.text(max_size=9) | st.binary(max_size=300) | INT64 | st.integers()


def read(reader: Any, message: bytes) -> Any:
    try:
        return reader.read_batch(message)
    except DecodeError:
        return "not to be read"


def test_what_is_compiled_is_what_runs() -> None:
    assert messages.read_batch is _messages.read_batch


@given(BATCHES)
def test_a_batch_is_read_as_protobuf_reads_it(message: bytes) -> None:
    assert _messages.read_batch(message) == _messages_py.read_batch(message)


@given(st.builds(BatchEntry, principal=st.binary(max_size=9), admit=ADMITS))
def test_what_is_read_is_found_by_its_fields(entry: BatchEntry) -> None:
    (found,) = _messages.read_batch(RunBatchRequest(entries=[entry]).SerializeToString())
    assert hash(found) == hash(tuple(found))


@given(message=BATCHES, at=st.floats(0, 1, exclude_max=True), change=st.binary(max_size=3), cut=st.integers(0, 3))
@example(message=bytes.fromhex("0a80808080808080808001"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("0a0412020a00") * 2, at=0, change=b"", cut=0)
@example(message=bytes.fromhex("0a0412001a00"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("0a041a021200"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("0a061a0412001200"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("0a0412020800"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("8a000412020a00"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("8a80808000020a00"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("8a8080808000020a00"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("0a82808080000a00"), at=0, change=b"", cut=0)
@example(message=bytes.fromhex("0a8280808080000a00"), at=0, change=b"", cut=0)
def test_bytes_that_were_changed_are_read_or_refused_alike(message: bytes, at: float, change: bytes, cut: int) -> None:
    place = int(at * len(message))
    changed = message[:place] + change + message[place + cut :]
    # By their texts, since a share that is no number equals none.
    assert repr(read(_messages, changed)) == repr(read(_messages_py, changed))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_alike(message: bytes) -> None:
    assert repr(read(_messages, message)) == repr(read(_messages_py, message))


@given(
    outcome=st.sampled_from([0, 2, 3, 4]),
    fence=UINT64,
    budget_left=st.integers(-1, 2**48),
    limits=st.builds(TenantLimits, max_rps=st.floats(allow_nan=False), burst=UINT32, has_budget=st.booleans()),
)
def test_an_admission_is_written_as_protobuf_writes_it(
    outcome: int, fence: int, budget_left: int, limits: TenantLimits
) -> None:
    told = outcome, fence, budget_left, limits.SerializeToString()
    assert _messages.write_admitted(*told) == _messages_py.write_admitted(*told)


@given(charged=UINT32, is_committed=st.booleans())
def test_a_conclusion_is_written_as_protobuf_writes_it(charged: int, is_committed: bool) -> None:
    written = _messages.write_concluded(charged, is_committed=is_committed)
    assert written == _messages_py.write_concluded(charged, is_committed=is_committed)


@given(st.lists(st.tuples(UINT32, st.booleans()), max_size=5))
def test_a_response_is_written_as_protobuf_writes_it(concluded: list[tuple[int, bool]]) -> None:
    outcomes = [_messages_py.write_concluded(charged, is_committed=committed) for charged, committed in concluded]
    assert _messages.write_batch(outcomes) == _messages_py.write_batch(outcomes)


@given(st.lists(WORDS, max_size=9).map(tuple))
@example(("EVALSHA", b"", "", 0, -(2**63), 2**63 - 1, "ü", b"\r\n" * 50))
@example(("EVALSHA", 2**63, -(2**63) - 1, 2**64, "a", 7))
def test_a_command_is_packed_as_hiredis_packs_it(words: tuple[str | bytes | int, ...]) -> None:
    assert _messages.pack(words) == _messages_py.pack(words)


@pytest.mark.parametrize("word", [None, 1.5, ["a"], bytearray(b"a")])
def test_what_is_no_word_of_a_command_is_refused(word: Any) -> None:
    with pytest.raises(TypeError):
        _messages.pack(("GET", word))
