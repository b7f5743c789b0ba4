"""Which settings hold at a moment."""

from helpers.as_written import run_both_ways
from ssop_router.profiles import RELOADABLE, Regimes
from ssop_router.settings import RouterSettings

NOON_MS = 12 * 3_600_000

way = run_both_ways("ssop_router.profiles", "Regimes")


def regimes(now_ms: int, *, has_calibration: bool = True) -> Regimes:
    peak = {"from": "11:00", "until": "13:00", "name": "peak", "full_share": 0.1, "rag_prefetch_ratio": 0.0}
    settings = RouterSettings.model_validate(
        {"nodes": ["x"], "keys_file": "x", "profiles": [peak], "score": {"threshold": 0.4}}
    )
    threshold_of = (lambda share: 0.9 - share) if has_calibration else None
    return Regimes(settings, threshold_of, lambda: now_ms)


def test_section_holds_outside_the_profile() -> None:
    regime = regimes(0).now()
    assert (regime.decision.score.threshold, regime.rag_prefetch_ratio, regime.max_in_flight) == (0.4, 0.3, 512)


def test_profile_changes_what_it_names() -> None:
    regime = regimes(NOON_MS).now()
    assert (regime.decision.score.threshold, regime.rag_prefetch_ratio, regime.max_in_flight) == (0.8, 0.0, 512)


def test_share_without_a_calibration_is_its_complement() -> None:
    assert regimes(NOON_MS, has_calibration=False).now().decision.score.threshold == 0.9


def test_a_reload_changes_what_holds_and_drops_a_profile() -> None:
    found = regimes(NOON_MS)
    found.take(
        RouterSettings.model_validate(
            {"nodes": ["x"], "keys_file": "x", "score": {"full_share": 0.25}, "max_in_flight": 7}
        )
    )
    regime = found.now()
    assert (regime.decision.score.threshold, regime.rag_prefetch_ratio, regime.max_in_flight) == (0.75, 0.3, 7)


def test_names_of_reloadable_settings_are_settings() -> None:
    assert set(RouterSettings.model_fields) >= RELOADABLE
