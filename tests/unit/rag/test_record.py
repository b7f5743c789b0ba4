"""Keys and records."""

import numpy as np
import pytest

from ssop_rag.core import record as record_module
from ssop_rag.core.record import (
    PASSAGE,
    Record,
    RecordError,
    decode_key,
    decode_record,
    encode_key,
    encode_record,
)
from ssop_rag.core.terms import extract_terms

VECTOR = np.array([0.6, 0.8], dtype=np.float32)
RECORD = Record("acme", "e5/1", 7, 3, {"text": "你好"}, VECTOR)


def test_a_record_survives_encoding() -> None:
    read = decode_record(encode_record(RECORD), tenant="acme", embedder="e5/1", dim=2)
    assert (read.tenant, read.embedder, read.expires_at_ms, read.version, read.fields) == (
        "acme",
        "e5/1",
        7,
        3,
        {"text": "你好"},
    )
    assert read.vector is not None
    assert read.vector.tolist() == VECTOR.tolist()


@pytest.mark.parametrize(
    ("data", "tenant", "embedder", "dim", "fault"),
    [
        (encode_record(RECORD), "other", "", 0, "tenant"),
        (encode_record(RECORD), "acme", "e5/2", 0, "embedder"),
        (encode_record(RECORD), "acme", "e5/1", 3, "malformed"),
        (b"\x03" + encode_record(RECORD)[1:], "acme", "", 0, "wire_version"),
        (encode_record(RECORD)[:20], "acme", "", 0, "malformed"),
        (encode_record(RECORD)[:-1], "acme", "", 0, "malformed"),
        (b"", "acme", "", 0, "wire_version"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(data: bytes, tenant: str, embedder: str, dim: int, fault: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode_record(data, tenant=tenant, embedder=embedder, dim=dim)
    assert caught.value.fault == fault


def test_terms_survive_beside_the_vector() -> None:
    terms = extract_terms("你好 world world")
    record = Record("acme", "e5/1", 0, 1, {}, VECTOR, terms)
    read = decode_record(encode_record(record), tenant="acme", embedder="e5/1", dim=2)
    assert read.terms is not None
    assert (read.terms.ids.tolist(), read.terms.counts.tolist()) == (terms.ids.tolist(), terms.counts.tolist())


def test_terms_of_other_rules_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_record(Record("acme", "e5/1", 0, 1, {}, VECTOR, extract_terms("a b")))
    monkeypatch.setattr(record_module, "ANALYZER", "other/1")
    read = decode_record(data, tenant="acme", embedder="e5/1", dim=2)
    assert (read.terms, read.vector is not None) == (None, True)


def test_a_record_without_terms_of_version_one_is_read() -> None:
    header = b'{"text":"x","tenant":"acme","embedder":"e5/1","expires_at_ms":0,"version":3}'
    data = b"\x01" + len(header).to_bytes(4, "big") + header + VECTOR.tobytes()
    read = decode_record(data, tenant="acme", embedder="e5/1", dim=2)
    assert (read.version, read.terms, read.vector is not None) == (3, None, True)


def test_a_record_cut_in_its_terms_is_refused() -> None:
    data = encode_record(Record("acme", "e5/1", 0, 1, {}, VECTOR, extract_terms("a b")))
    with pytest.raises(RecordError, match="malformed"):
        decode_record(data[:-2], tenant="acme", embedder="e5/1", dim=2)


def test_parts_cannot_be_shifted_between_keys() -> None:
    assert encode_key(PASSAGE, "a", "bc") != encode_key(PASSAGE, "ab", "c")


def test_one_tenants_prefix_is_no_prefix_of_another() -> None:
    assert not encode_key(PASSAGE, "acme-2", "c").startswith(encode_key(PASSAGE, "acme"))


def test_a_key_gives_back_its_parts() -> None:
    key = encode_key(PASSAGE, "租户", "faq", "doc", number=5)
    assert decode_key(key) == (["租户", "faq", "doc"], b"\0\0\0\5")
