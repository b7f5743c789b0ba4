"""The report of a day: figures, clusters, alerts, and what to do today. JSON, and HTML that loads nothing."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime, timedelta
from datetime import time as day_time
from html import escape
from importlib.resources import files
from typing import Any, Final
from zoneinfo import ZoneInfo

from ssop_opinion.core.actions import Proposals
from ssop_opinion.core.alerts import Alert
from ssop_opinion.core.summary import LABELS, Summary
from ssop_opinion.history import each_record
from ssop_opinion.ports import Sink
from ssop_opinion.report_charts import bars_chart, series_chart

_HOURS: Final = 24


def day_span(day: date, zone: ZoneInfo) -> tuple[int, int]:
    """When a day begins, and when the next one does, in Unix milliseconds: 23 to 25 hours."""
    begin = datetime.combine(day, day_time(), zone)
    end = datetime.combine(day + timedelta(days=1), day_time(), zone)
    return round(begin.timestamp() * 1_000), round(end.timestamp() * 1_000)


async def make_report(sink: Sink, tenant: str, day: date, zone: ZoneInfo, alerts: Sequence[Alert]) -> dict[str, Any]:
    """The report as a JSON object. `alerts` are the tenant's of the day. Raises SinkAwayError and TooManyError."""
    since_ms, until_ms = day_span(day, zone)
    summary, proposals = Summary(since_ms, until_ms, _HOURS), Proposals()
    schemas: dict[str, int] = {}
    async for record in each_record(sink, tenant, since_ms, until_ms):
        summary.add(record)
        proposals.add(record)
        name = f"{record.analysis.schema_id} {record.analysis.schema_hash}".strip()
        schemas[name] = schemas.get(name, 0) + 1
    return {
        "tenant": tenant,
        "day": day.isoformat(),
        "time_zone": zone.key,
        "made_ms": time.time_ns() // 1_000_000,
        "schemas": schemas,
        "actions": proposals.ranked(alerts),
        "alerts": [_alert(one) for one in alerts],
        "summary": summary.to_json(),
    }


def _alert(alert: Alert) -> dict[str, Any]:
    found = asdict(alert)
    del found["places"]
    return found


def render_report(report: Mapping[str, Any]) -> str:
    """The report as a page. What posts and models wrote is text in it."""
    summary = report["summary"]
    zone = ZoneInfo(report["time_zone"])
    title = f"Opinion of {report['day']}: {report['tenant']}"
    apart = summary["degraded"]["posts"] + summary["failed"]["posts"]
    fresh = summary["fresh"]
    share = f"{100 * fresh['negative'] / fresh['posts']:.0f} %" if fresh["posts"] else "–"
    style = (files("ssop_opinion") / "page" / "report.css").read_text(encoding="utf-8")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{style}</style></head><body><h1>{escape(title)}</h1>",
        f"<p>{fresh['posts']:,} posts, {share} negative, mean score {_shown(fresh['mean_score'])}. "
        f"{apart:,} more are degraded ({summary['degraded']['posts']:,}) or failed ({summary['failed']['posts']:,}) "
        f"and in none of the figures. Times are in {escape(report['time_zone'])}.</p>",
        "<h2>To do today</h2>",
        _actions(report["actions"]),
        "<h2>Sentiment over the day</h2>",
        series_chart(summary, zone),
        "<h2>Top entities</h2>",
        bars_chart(summary["entities"]),
        "<h2>Event types</h2>",
        bars_chart(summary["events"]),
        "<h2>Regions and product lines</h2>",
        _clusters(summary["clusters"]),
        "<h2>Alerts</h2>",
        _alerts(report["alerts"], zone),
        _schemas(report["schemas"]),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _schemas(schemas: Mapping[str, int]) -> str:
    named = ", ".join(f"{name or 'unnamed'} ({n:,})" for name, n in schemas.items())
    return f'<p class="note">Schemas of the records: {escape(named or "none")}.</p>'


def _actions(actions: Sequence[Mapping[str, Any]]) -> str:
    if not actions:
        return "<p>Nothing.</p>"
    rows = [
        (
            _suggested(one), f"{one['entity']} / {one['event_type']}", one["summary"], one["posts"],
            one["severity_max"], ", ".join([*one["regions"], *one["product_lines"]]), _told(one["alert"]),
        )
        for one in actions
    ]  # fmt: skip
    return _table(("action", "about", "the gravest post", "#posts", "#severity", "where", "alert"), rows)


def _suggested(one: Mapping[str, Any]) -> str:
    others = ", ".join(f"{name} {n}" for name, n in one["suggested"].items() if name != one["action"])
    return f"{one['action']} ({others})" if others else str(one["action"])


def _told(alert: Mapping[str, Any] | None) -> str:
    if alert is None:
        return "none"
    return f"{alert['severity']}, {'acknowledged' if alert['is_acknowledged'] else 'not acknowledged'}"


def _clusters(clusters: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            one["region"] or "(none)", one["product_line"] or "(none)", one["posts"], *(one[label] for label in LABELS),
            _shown(one["mean_score"]), f"{one['entity']} / {one['event_type']}",
        )
        for one in clusters
    ]  # fmt: skip
    heads = ("region", "product line", "#posts", *(f"#{label}" for label in LABELS), "#mean", "mostly")
    return _table(heads, rows)


def _alerts(alerts: Sequence[Mapping[str, Any]], zone: ZoneInfo) -> str:
    if not alerts:
        return "<p>None.</p>"
    rows = [
        (
            _clock(one["opened_ms"], zone), one["severity"], one["phase"],
            f"and {one['more']} more" if one["kind"] == "storm" else f"{one['entity']} / {one['event_type']}",
            one["rule"], one["posts"], one["degraded_posts"],
            f"{one['acknowledged_by']}, {_clock(one['acknowledged_ms'], zone)}" if one["acknowledged_ms"] else "nobody",
        )
        for one in alerts
    ]  # fmt: skip
    return _table(("opened", "severity", "state", "about", "rule", "#posts", "#degraded", "acknowledged"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; a head that begins with # is of numbers."""
    marks = [' class="n"' if head.startswith("#") else "" for head in heads]
    head = "".join(
        f'<th scope="col"{mark}>{escape(one.lstrip("#"))}</th>' for one, mark in zip(heads, marks, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{escape(str(one))}</td>" for one, mark in zip(row, marks, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _clock(at_ms: int, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, zone).strftime("%H:%M:%S")


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
