"""What must be true of a run when it is over, whatever happened in it. Each check raises LedgerFault."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


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
