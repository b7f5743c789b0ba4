"""What must be true of a run when it is over, whatever happened in it. Each check raises LedgerFault."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class LedgerFault(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Books:
    """Tokens of a tenant as the state instance has them."""

    charged: int
    reserved: int


def check_budget(books: Iterable[Books], budget_tokens: int) -> None:
    """At no time were more tokens promised and used than there are."""
    for seen in books:
        if seen.charged + seen.reserved > budget_tokens:
            raise LedgerFault(f"{seen} is more than the budget of {budget_tokens}")


def check_charges(books: Books, generated: Sequence[int]) -> None:
    """At rest: what was generated is what was charged, each once, and nothing is reserved.

    `generated` has the tokens of every generation that ended.
    """
    if books.charged != sum(generated):
        raise LedgerFault(f"{books.charged} tokens were charged for {sum(generated)}")
    if books.reserved:
        raise LedgerFault(f"{books.reserved} tokens are still reserved")


def check_final(sent: Sequence[tuple[tuple[str | int, ...], Any]], document: Any) -> None:
    """Each field was sent once, and the document has it as it was sent. `sent`: paths and values, in their order."""
    for path, times in Counter(path for path, _ in sent).items():
        if times > 1:
            raise LedgerFault(f"{path} was sent {times} times")
    for path, value in sent:
        found = document
        try:
            for token in path:
                found = found[token]
        except (LookupError, TypeError) as error:
            raise LedgerFault(f"{path} was sent and is not there") from error
        if found != value or type(found) is not type(value):
            raise LedgerFault(f"{path} was sent and then changed")


def check_one_hand(document: Any, expected: Any) -> None:
    """What two nodes wrote fits together: `expected` is what follows from the beginning of the document."""
    if document != expected:
        raise LedgerFault("the rest of a document does not follow from its beginning")


def check_terminal(asked: Iterable[str], ended: Iterable[str]) -> None:
    """Each request has one terminal record. `ended` are the ids of those records."""
    records = Counter(ended)
    for request_id in asked:
        if records[request_id] != 1:
            raise LedgerFault(f"request {request_id} has {records[request_id]} terminal records")


def check_flight(calls: int, epochs: int) -> None:
    """One model call for a key in each epoch of its lease."""
    if calls != epochs:
        raise LedgerFault(f"{calls} model calls in {epochs} epochs of a lease")


def check_newest(found: Collection[str], newest: str) -> None:
    """After a later generation has stored its answer nobody is given an older one."""
    if set(found) != {newest}:
        raise LedgerFault(f"{set(found)} was given where {newest!r} was stored last")


def check_unblamed(rules: Sequence[str]) -> None:
    """No rule spoke against a node for what callers did."""
    if rules:
        raise LedgerFault(f"nodes were blamed by {sorted(set(rules))}")
