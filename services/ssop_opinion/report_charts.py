"""Charts of reports as inline SVG, with a title and a description for those who can't see them."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final
from zoneinfo import ZoneInfo

from ssop_opinion.core.summary import LABELS

_WIDTH: Final = 960
_LEFT: Final = 44
_RIGHT: Final = 40
_TOP: Final = 26
_BOTTOM: Final = 30
_HEIGHT: Final = 240


def series_chart(summary: Mapping[str, Any], zone: ZoneInfo) -> str:
    """Posts by sentiment for each span of time, and the mean score on an axis of its own."""
    series: Sequence[Mapping[str, Any]] = summary["series"]
    most = _nice_top(max((one["posts"] for one in series), default=0))
    inner, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    step = inner / max(1, len(series))
    parts = []
    for share, mean in ((0.0, "−5"), (0.5, "0"), (1.0, "5")):
        y = _TOP + height * (1 - share)
        parts.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * share:g}</text>'
            f'<text x="{_WIDTH - _RIGHT + 6}" y="{y + 4:.1f}">{mean}</text>'
        )
    line = ""
    is_drawn = False
    for index, one in enumerate(series):
        x, held = _LEFT + index * step, 0
        for label in LABELS:
            tall = height * one[label] / most
            y = _TOP + height * (1 - (held + one[label]) / most)
            if one[label]:
                place = f'x="{x + 0.5:.1f}" y="{y:.1f}" width="{max(1.0, step - 1):.1f}" height="{tall:.1f}"'
                parts.append(
                    f'<rect class="{label}" {place}>'
                    f"<title>{_clock(one['at_ms'], zone)}: {one[label]} {label}</title></rect>"
                )
            held += one[label]
        if index % 4 == 0:
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 10}">{_clock(one["at_ms"], zone)}</text>')
        if one["mean_score"] is None:
            # A gap in the data is a gap in the line.
            is_drawn = False
            continue
        y = _TOP + height * (0.5 - one["mean_score"] / 10)
        line += f"{'L' if is_drawn else 'M'}{x + step / 2:.1f} {y:.1f}"
        is_drawn = True
    parts.append(f'<path class="mean" d="{line}"/>')
    parts.append(f'<text x="4" y="12">posts</text><text x="{_WIDTH - 4}" y="12" text-anchor="end">mean score</text>')
    parts.append(_legend())
    fresh = summary["fresh"]
    said = f"{fresh['posts']} posts: " + ", ".join(f"{fresh[label]} {label}" for label in LABELS)
    return _svg(_HEIGHT, "Posts by sentiment over the day, and their mean score", said, parts)


def bars_chart(tallies: Sequence[Mapping[str, Any]]) -> str:
    """A bar for each name, its parts by sentiment, with the number of posts."""
    most = max((one["posts"] for one in tallies), default=1)
    row, left = 24, 220
    parts = []
    for index, one in enumerate(tallies):
        y, x = index * row, float(left)
        name = one["name"] or "(none)"
        shown = name if len(name) <= 32 else f"{name[:31]}…"
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(shown)}</text>')
        for label in LABELS:
            width = (_WIDTH - left - 60) * one[label] / most
            if one[label]:
                parts.append(f'<rect class="{label}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="14"/>')
            x += width
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{one["posts"]:,}</text>')
    said = "; ".join(f"{one['name'] or '(none)'}: {one['posts']} posts, {one['negative']} negative" for one in tallies)
    return _svg(max(row, row * len(tallies)), "Posts by name and sentiment", said or "No posts.", parts)


def _svg(height: int, title: str, said: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"<desc>{escape(said)}</desc>{''.join(parts)}</svg>"
    )


def _legend() -> str:
    parts = []
    x = _LEFT + 10
    for label in LABELS:
        parts.append(
            f'<rect class="{label}" x="{x}" y="3" width="10" height="10"/><text x="{x + 15}" y="12">{label}</text>'
        )
        x += 80
    parts.append(f'<path class="mean" d="M{x} 8h12"/><text x="{x + 17}" y="12">mean</text>')
    return "".join(parts)


def _nice_top(value: float) -> float:
    step = 10 ** math.floor(math.log10(max(1, value)))
    return float(next((top * step for top in (1, 2, 5, 10) if top * step >= value), value))


def _clock(at_ms: int, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, zone).strftime("%H:%M")
