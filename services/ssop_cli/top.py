"""`ssop top`: the mesh at work, drawn anew every second."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ssop.v1.router_pb2 import GetMeshStatusResponse, TrafficView
from ssop_cli.board import can_redraw, show_ms
from ssop_cli.mesh import Access, open_client
from ssop_cli.places import Places
from ssop_cli.status import local_report, status_view
from ssop_sdk import SsopClient
from ssop_sdk.errors import SsopError

_BARS: Final = "▁▂▃▄▅▆▇█"
_WIDTH: Final = 60
_TIMEOUT_S: Final = 2.0


class Rates:
    """Document frames per second between two looks, the last 60 of them."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self.values: deque[float] = deque(maxlen=_WIDTH)

    def take(self, status: GetMeshStatusResponse) -> None:
        """A look. A router that has started anew counts from there."""
        now = (status.uptime_ms, status.frames_sent)
        if self._last is not None and now[0] > self._last[0] and now[1] >= self._last[1]:
            self.values.append((now[1] - self._last[1]) * 1000 / (now[0] - self._last[0]))
        self._last = now


def draw_bars(values: Iterable[float]) -> str:
    """A bar of one character for each value, the largest of them full."""
    numbers = list(values)
    top = max(numbers, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, round(value / top * (len(_BARS) - 1)))] for value in numbers)


def traffic_view(traffic: TrafficView, rates: Rates) -> RenderableType:
    """The last minute as a table."""
    total = sum(traffic.outcomes.values())
    window_s = traffic.window_ms / 1000 or 1.0
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row("requests", f"{total:,} in the last {window_s:.0f} s, {total / window_s:.1f} a second")
    table.add_row("outcomes", _counts(traffic.outcomes, good="OK"))
    table.add_row("tiers", _counts(traffic.tiers))
    table.add_row("cache", _counts(traffic.cache))
    levels = {f"level {level}": count for level, count in traffic.degraded.items()}
    table.add_row("degraded", _counts(levels, bad=True) if levels else Text("none", style="green"))
    first = f"p50 {show_ms(round(traffic.first_field_p50_ms))}, p95 {show_ms(round(traffic.first_field_p95_ms))}"
    table.add_row("first field", first if traffic.first_field_p50_ms else "-")
    now = f"{rates.values[-1]:,.0f}" if rates.values else "-"
    table.add_row("frames/s", f"{now:>6}  {draw_bars(rates.values)}")
    return table


def run_top(access: Access, places: Places, console: Console, *, interval_s: float, looks: int) -> None:
    """Draw until interrupted, or `looks` times; 0: no end. A router that is away is said, and asked again.

    Where nothing can be drawn over, one look is printed below the other.
    Raises CommandError where the first look fails.
    """
    rates, left = Rates(), looks
    with open_client(access, _TIMEOUT_S) as client:
        view = look(client, access, places, rates)
        # Ctrl-C is how it is meant to end.
        with contextlib.suppress(KeyboardInterrupt), _canvas(console, view, is_single=looks == 1) as draw:
            while (left := left - 1) != 0:
                time.sleep(interval_s)
                try:
                    view = look(client, access, places, rates)
                except SsopError as error:
                    view = Text(f"the router does not answer ({error.reason or type(error).__name__})", style="red")
                draw(view)


@contextlib.contextmanager
def _canvas(console: Console, first: RenderableType, *, is_single: bool) -> Iterator[Callable[[RenderableType], None]]:
    """What shows a view: in place of the one before where that can be, else below it."""
    if is_single or not can_redraw(console):
        console.print(first)
        yield lambda view: console.print(Text(), view)
        return
    with Live(first, console=console, screen=True, auto_refresh=False) as live:
        yield lambda view: live.update(view, refresh=True)


def look(client: SsopClient, access: Access, places: Places, rates: Rates) -> RenderableType:
    """One look at the mesh. Raises SsopError."""
    status = client.mesh_status()
    rates.take(status)
    now_ms = time.time_ns() // 1_000_000
    whole = status_view(local_report(places), status, access, now_ms)
    # What moves comes first: 24 lines do not hold all of it.
    return Group(Text("the last minute", style="bold"), traffic_view(status.traffic, rates), Text(), whole)


def _counts(counts: Mapping[str, int], *, good: str = "", bad: bool = False) -> Text:
    text = Text()
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        style = "red" if bad or (good and name != good) else ""
        text.append(f"{name} {count:,}  ", style=style)
    return text or Text("-")
