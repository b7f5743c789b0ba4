"""Which limits of prefetches hold now: the section's, or those of the profile that is in force."""

import logging
from collections.abc import Callable
from dataclasses import replace

from ssop_chassis.schedule import Profiles
from ssop_rag.core.account import Accounts
from ssop_rag.core.budget import BudgetLimits
from ssop_rag.core.prefetch import Limits, PrefetchBook
from ssop_rag.settings import RagProfile, RagSettings

_log = logging.getLogger(__name__)


class PrefetchControl:
    """Applies profiles to the book and the accounts. `wall_ms` is milliseconds since the epoch."""

    def __init__(
        self, settings: RagSettings, book: PrefetchBook, accounts: Accounts, wall_ms: Callable[[], int]
    ) -> None:
        self._profiles = Profiles(settings.profiles)
        self._book = book
        self._accounts = accounts
        self._wall_ms = wall_ms
        self._limits = Limits(settings.rag_max_concurrent, ttl_ms=settings.prefetch_ttl_ms)
        self._budget = BudgetLimits(settings.prefetch_budget, settings.prefetch_window_ms)
        self._active: RagProfile | None = None

    def refresh(self) -> None:
        """Put the limits of this moment into force."""
        profile = self._profiles.find(self._wall_ms())
        if profile is not self._active:
            self._active = profile
            name = profile.name or profile.starts if profile is not None else ""
            _log.info("a profile holds" if profile is not None else "no profile holds", extra={"profile": name})
            running = profile.rag_max_concurrent if profile is not None else None
            budget = profile.prefetch_budget if profile is not None else None
            self._book.change(replace(self._limits, tenant_running=running) if running is not None else self._limits)
            self._accounts.change(replace(self._budget, prefetches=budget) if budget is not None else self._budget)
