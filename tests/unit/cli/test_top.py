"""`ssop top`: rates, bars, and the table of the last minute."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from ssop.v1.router_pb2 import GetMeshStatusResponse, TrafficView
from ssop_cli import mesh
from ssop_cli.mesh import Access
from ssop_cli.places import find_places
from ssop_cli.top import Rates, draw_bars, run_top, traffic_view


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


class Router:
    """A client whose router serves some frames between two looks."""

    def __init__(self, **_: object) -> None:
        self.looks = 0

    def __enter__(self) -> "Router":
        return self

    def __exit__(self, *_: object) -> None: ...

    def mesh_status(self) -> GetMeshStatusResponse:
        self.looks += 1
        return GetMeshStatusResponse(uptime_ms=1_000 * self.looks, in_flight=self.looks)


def watch(monkeypatch: pytest.MonkeyPatch, folder: Path, console: Console, looks: int) -> str:
    monkeypatch.setattr(mesh, "SsopClient", Router)
    run_top(Access("127.0.0.1:1", "k"), find_places(folder, {}), console, interval_s=0.0, looks=looks)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "dumb"])
def test_where_nothing_can_be_drawn_over_each_look_is_printed(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=is_terminal, _environ={"TERM": "dumb"})
    text = watch(monkeypatch, tmp_path, console, 3)
    assert [text.count(f"in flight {look};") for look in (1, 2, 3)] == [1, 1, 1]


def test_terminal_has_looks_drawn_over_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=100, height=50, force_terminal=True, _environ={"TERM": "xterm"})
    assert "\x1b[?1049h" in watch(monkeypatch, tmp_path, console, 2)


def test_last_minute_is_within_the_first_ten_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = watch(monkeypatch, tmp_path, Console(file=io.StringIO(), width=100), 1)
    assert "frames/s" in "".join(text.splitlines()[:10])
