"""The book of prefetches."""

import numpy as np
import pytest

from ssop_rag.core.model import Candidates, Query
from ssop_rag.core.prefetch import Begun, Entry, Limits, PrefetchBook, Result

LIMITS = Limits(tenant_running=2, tenant_entries=3, entries=4, ttl_ms=100)
RESULT = Result(
    np.zeros(2, np.float32), Candidates(Query("", None), (), (), [], np.zeros((0, 2), np.float32), True), 15, 20
)


@pytest.fixture
def book() -> PrefetchBook:
    return PrefetchBook(LIMITS)


def start(book: PrefetchBook, request_id: str, text: str = "what", *, tenant: str = "acme", now_ms: int = 0) -> Entry:
    entry = book.begin(tenant, request_id, (), text, now_ms).entry
    assert entry is not None
    return entry


def test_a_longer_prefix_replaces(book: PrefetchBook) -> None:
    old = start(book, "r", "what")
    assert book.begin("acme", "r", (), "what is", 1).replaced is old


def test_a_shorter_prefix_changes_nothing(book: PrefetchBook) -> None:
    entry = start(book, "r", "what is")
    assert book.begin("acme", "r", (), "what", 1).outcome is Begun.KEPT
    assert book.take("acme", "r", 1) is entry


def test_a_longer_prefix_replaces_in_a_full_book_too(book: PrefetchBook) -> None:
    for tenant in "abcd":
        start(book, "r", tenant=tenant)
    assert book.begin("e", "r", (), "what", 1).outcome is Begun.BOOK_FULL
    assert book.begin("a", "r", (), "what is", 1).outcome is Begun.STARTED


def test_other_collections_replace_whatever_the_length(book: PrefetchBook) -> None:
    start(book, "r", "what is")
    assert book.begin("acme", "r", ("faq",), "what", 1).outcome is Begun.STARTED


def test_a_tenant_runs_no_more_than_its_bound(book: PrefetchBook) -> None:
    start(book, "1")
    start(book, "2")
    assert book.begin("acme", "3", (), "what", 0).outcome is Begun.TENANT_FULL


def test_a_finished_one_makes_room_to_run(book: PrefetchBook) -> None:
    entry = start(book, "1")
    start(book, "2")
    book.finish(entry, RESULT)
    assert book.begin("acme", "3", (), "what", 0).outcome is Begun.STARTED


def test_ready_ones_count_against_the_tenants_entries(book: PrefetchBook) -> None:
    for name in "123":
        book.finish(start(book, name), RESULT)
    assert book.begin("acme", "4", (), "what", 0).outcome is Begun.TENANT_FULL


def test_the_book_is_bounded_over_all_tenants(book: PrefetchBook) -> None:
    for number in range(4):
        start(book, "r", tenant=f"t{number}")
    assert book.begin("acme", "r", (), "what", 0).outcome is Begun.BOOK_FULL


def test_tenants_with_the_same_request_id_do_not_meet(book: PrefetchBook) -> None:
    start(book, "r", tenant="acme")
    assert book.take("other", "r", 0) is None


def test_one_is_taken_once(book: PrefetchBook) -> None:
    entry = start(book, "r")
    assert [book.take("acme", "r", 0), book.take("acme", "r", 0)] == [entry, None]


def test_an_expired_one_is_not_taken(book: PrefetchBook) -> None:
    start(book, "r", now_ms=0)
    assert book.take("acme", "r", 100) is None


def test_expire_takes_out_what_is_over(book: PrefetchBook) -> None:
    old = start(book, "1", now_ms=0)
    start(book, "2", now_ms=50)
    assert book.expire(100) == [old]
    assert len(book) == 1


def test_finish_tells_when_it_is_not_wanted_any_more(book: PrefetchBook) -> None:
    entry = start(book, "r")
    book.take("acme", "r", 0)
    assert not book.finish(entry, RESULT)


def test_overlap_ends_when_the_work_ended(book: PrefetchBook) -> None:
    entry = start(book, "r", now_ms=5)
    book.finish(entry, RESULT)
    assert [entry.overlap_ms(12), entry.overlap_ms(90)] == [7, 15]
