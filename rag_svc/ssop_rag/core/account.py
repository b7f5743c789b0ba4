"""What the prefetches of each tenant cost and saved. Pure; time is passed in, in milliseconds.

At most `MAX_TENANTS` are kept; beyond, the one that was used longest ago is forgotten.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from ssop_rag.core.budget import Budget, BudgetLimits
from ssop_rag.core.worth import Mode, Worth, WorthLimits

MAX_TENANTS: Final = 10_000


@dataclass(slots=True)
class Tally:
    """Counts since the start. Times in milliseconds."""

    started: int = 0
    hits: int = 0
    wasted: int = 0
    shed: int = 0
    tokens: int = 0
    candidates: int = 0
    saved_ms: float = 0.0
    wasted_ms: float = 0.0


@dataclass(slots=True)
class Account:
    """One tenant's."""

    budget: Budget
    worth: Worth
    tally: Tally = field(default_factory=Tally)


class Accounts:
    """The tenants'. Under `change` new limits hold from the next prefetch on."""

    def __init__(self, budget: BudgetLimits, worth: WorthLimits) -> None:
        self._budget = budget
        self._worth = worth
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    @property
    def budget(self) -> BudgetLimits:
        """What each tenant may start."""
        return self._budget

    def change(self, budget: BudgetLimits) -> None:
        """Let other budgets hold."""
        self._budget = budget

    def of(self, tenant: str, now_ms: int) -> Account:
        """A tenant's account."""
        account = self._accounts.get(tenant)
        if account is None:
            account = Account(Budget(self._budget, now_ms), Worth(self._worth))
            self._accounts[tenant] = account
            if len(self._accounts) > MAX_TENANTS:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(tenant)
        account.budget.change(self._budget, now_ms)
        return account

    def hit(self, tenant: str, now_ms: int, saved_ms: float) -> Mode | None:
        """A prefetch was used; the mode of the tenant's prefetches, where it changed."""
        account = self.of(tenant, now_ms)
        account.tally.hits += 1
        account.tally.saved_ms += saved_ms
        return account.worth.record(now_ms, saved_ms=saved_ms, wasted_ms=0.0)

    def waste(self, tenant: str, now_ms: int, wasted_ms: float) -> Mode | None:
        """A prefetch was of no use; as `hit`."""
        account = self.of(tenant, now_ms)
        account.tally.wasted += 1
        account.tally.wasted_ms += wasted_ms
        return account.worth.record(now_ms, saved_ms=0.0, wasted_ms=wasted_ms)
