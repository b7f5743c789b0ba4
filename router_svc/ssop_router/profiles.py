# cython: annotation_typing=False
"""Settings that change while the router runs: by the clock (profiles), or as the file says now (a reload).

`profiles.pxd` gives the types with which this very file is compiled.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ssop_chassis.schedule import Profiles
from ssop_router.core.decision import DecisionSettings

if TYPE_CHECKING:
    from ssop_router.settings import RouterProfile, RouterSettings

RELOADABLE: Final = frozenset(
    {
        "canaries",
        "default_tier",
        "follow_up_chars",
        "low_memory_ratio",
        "max_attempts",
        "max_in_flight",
        "profiles",
        "rag_prefetch_ratio",
        "rules",
        "score",
    }
)
"""Settings of `[router]` that a reload changes; the others hold from the next start."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Regime:
    """What holds at a moment."""

    decision: DecisionSettings
    rag_prefetch_ratio: float
    max_in_flight: int


class Regimes:
    """Tells which regime holds. `wall_ms` is milliseconds since the epoch.

    `threshold_of` is the classifier's calibration of a share of the full tier; None where it has none.
    """

    def __init__(
        self,
        settings: "RouterSettings",
        threshold_of: Callable[[float], float] | None,
        wall_ms: Callable[[], int],
    ) -> None:
        self._threshold_of = threshold_of
        self._wall_ms = wall_ms
        self.take(settings)

    def take(self, settings: "RouterSettings") -> None:
        """From now on these hold, as far as they are RELOADABLE. Requests that run go on with what they began with."""
        self._profiles = Profiles(settings.profiles)
        self._own = Regime(settings.decision(), settings.rag_prefetch_ratio, settings.max_in_flight)
        self._of = {id(profile): _apply(profile, self._own, self._threshold_of) for profile in settings.profiles}
        self._active: RouterProfile | None = None

    def now(self) -> Regime:
        """What holds now."""
        if not self._of:
            return self._own
        profile = self._profiles.find(self._wall_ms())
        if profile is not self._active:
            self._active = profile
            name = (profile.name or profile.starts) if profile is not None else ""
            _log.info("a profile holds" if profile is not None else "no profile holds", extra={"profile": name})
        return self._of[id(profile)] if profile is not None else self._own


def _apply(profile: "RouterProfile", own: Regime, threshold_of: Callable[[float], float] | None) -> Regime:
    decision = own.decision
    if (share := profile.full_share) is not None:
        threshold = threshold_of(share) if threshold_of is not None else 1 - share
        decision = replace(decision, score=replace(decision.score, threshold=threshold))
    ratio, most = profile.rag_prefetch_ratio, profile.max_in_flight
    return Regime(
        decision,
        ratio if ratio is not None else own.rag_prefetch_ratio,
        most if most is not None else own.max_in_flight,
    )
