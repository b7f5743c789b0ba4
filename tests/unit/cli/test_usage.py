"""What `ssop usage` shows."""

import io

from rich.console import Console

from ssop.v1.mesh_pb2 import TIER_LITE, TIER_UNSPECIFIED, Tier
from ssop.v1.usage_pb2 import DayUsage, GetUsageResponse, TierUsage
from ssop_cli.usage import usage_table


def test_tier_of_a_later_version_shows_as_its_number() -> None:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    tiers = [TierUsage(tier=number, requests=1) for number in (TIER_UNSPECIFIED, TIER_LITE, Tier.ValueType(9))]
    console.print(usage_table(GetUsageResponse(days=[DayUsage(day="2026-01-01", tiers=tiers)])))
    assert isinstance(console.file, io.StringIO)
    words = [line.replace("2026-01-01", "").split() for line in console.file.getvalue().splitlines()[1:]]
    assert [cells[0] for cells in words] == ["no", "lite", "9"]
