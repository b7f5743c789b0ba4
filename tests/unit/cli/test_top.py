"""`ssop top`: rates, bars, and the table of the last minute."""

import io

from rich.console import Console

from ssop.v1.router_pb2 import GetMeshStatusResponse, TrafficView
from ssop_cli.top import Rates, draw_bars, traffic_view


def test_rates_are_frames_per_second_between_looks() -> None:
    rates = Rates()
    for uptime_ms, frames in ((1_000, 10), (2_000, 30), (4_000, 30)):
        rates.take(GetMeshStatusResponse(uptime_ms=uptime_ms, frames_sent=frames))
    assert list(rates.values) == [20, 0]


def test_a_router_that_started_anew_has_no_rate_yet() -> None:
    rates = Rates()
    rates.take(GetMeshStatusResponse(uptime_ms=90_000, frames_sent=1_000))
    rates.take(GetMeshStatusResponse(uptime_ms=500, frames_sent=3))
    assert not rates.values


def test_the_largest_bar_is_full_and_nothing_is_empty() -> None:
    assert draw_bars([0, 50, 100]) == "▁▅█"
    assert draw_bars([]) == ""
    assert draw_bars([0, 0]) == "▁▁"


def test_table_shows_errors_levels_and_latency() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    traffic = TrafficView(
        window_ms=60_000,
        outcomes={"OK": 58, "NO_BACKEND": 2},
        degraded={2: 3},
        first_field_p50_ms=120.4,
        first_field_p95_ms=1_500.0,
    )
    console.print(traffic_view(traffic, Rates()))
    text = console.export_text()
    for part in ("60 in the last 60 s, 1.0 a second", "NO_BACKEND 2", "level 2 3", "p50 120 ms, p95 1.5 s"):
        assert part in text


def test_an_idle_router_shows_dashes() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(traffic_view(TrafficView(window_ms=60_000), Rates()))
    assert "none" in console.export_text()
