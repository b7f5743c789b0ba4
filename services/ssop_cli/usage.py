"""`ssop usage`: what a tenant used, by day, with its cost at the router's prices; prefetches told apart."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from rich.table import Table

from ssop.v1.mesh_pb2 import Tier
from ssop.v1.usage_pb2 import DayUsage, GetUsageResponse
from ssop_cli.words import word


def usage_json(usage: GetUsageResponse) -> dict[str, Any]:
    """As JSON; 64-bit counts are strings, as in protobuf's JSON."""
    found: dict[str, Any] = MessageToDict(usage, preserving_proto_field_name=True)
    return found


def usage_table(usage: GetUsageResponse) -> Table:
    """A line for each day and tier, and what no tier has."""
    table = Table("day", "tier", box=None, header_style="bold")
    for heading in ("requests", "input tokens", "output tokens", "cost", "cached", "degraded", "failed", "prefetches"):
        table.add_column(heading, justify="right")
    for day in usage.days:
        _add_day(table, day)
    return table


def _add_day(table: Table, day: DayUsage) -> None:
    prefetches = f"{day.prefetch_hits:,} of {day.prefetches:,} used" if day.prefetches else "0"
    whole = [f"{day.cached:,}", f"{day.degraded:,}", f"{day.failed:,}", prefetches]
    for index, tier in enumerate(day.tiers):
        name = word(Tier, tier.tier, "TIER_") or "no model"
        table.add_row(
            day.day if index == 0 else "",
            name,
            f"{tier.requests:,}",
            f"{tier.input_tokens:,}",
            f"{tier.output_tokens:,}",
            f"{tier.cost:,.4f}",
            *(whole if index == 0 else [""] * len(whole)),
        )
