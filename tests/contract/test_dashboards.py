"""The Grafana dashboards: made by code, understood by the SDK. No Grafana server renders them here."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.dashboards import EXPRESSIONS, FILES, FOLDER, metrics_of

RULES = FOLDER.parent / "prometheus" / "ssop.rules.yml"

pytestmark = pytest.mark.needs("grafana")


def round_trip(document: dict[str, Any]) -> Any:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - what the test needs
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

    return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(document)))


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def find(title: str) -> dict[str, Any]:
    documents = [json.loads(path.read_text()) for path in FILES]
    return next(panel for document in documents for panel in panels(document) if panel["title"] == title)


def test_committed_files_are_what_the_code_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FOLDER / "dashboards.py"), str(tmp_path)], check=True, timeout=60)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in FILES}
    for path in FILES:
        assert (tmp_path / path.name).read_text() == path.read_text(), f"python {FOLDER.name}/dashboards.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_sdk_understands_every_word(path: Path) -> None:
    document = json.loads(path.read_text())
    assert round_trip(document) == document


def test_a_misspelt_word_would_be_found() -> None:
    document = json.loads(FILES[0].read_text())
    document["panels"][1]["titel"] = "x"
    assert round_trip(document) != document


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_panel_says_what_it_shows_and_asks_the_source_that_is_chosen(path: Path) -> None:
    for panel in panels(json.loads(path.read_text())):
        assert panel["description"], panel["title"]
        assert panel["targets"], panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${source}"}


@pytest.mark.parametrize(("ratio", "color"), [(0.0, "red"), (0.59, "red"), (0.6, "green"), (1.0, "green")])
def test_prefetch_hits_turn_red_below_60_percent(ratio: float, color: str) -> None:
    steps = find("Prefetch hits, 30 min")["fieldConfig"]["defaults"]["thresholds"]["steps"]
    below = [step["color"] for step in steps if step["value"] is None or step["value"] <= ratio]
    assert below[-1] == color


def test_state_turns_yellow_where_its_ticket_is_written() -> None:
    (threshold,) = re.findall(r"ssop_cache_state_max_bytes > 0\)\) > ([\d.]+)", RULES.read_text())
    steps = find("State used")["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps if step["color"] == "yellow"] == [float(threshold)]


def test_everything_that_was_asked_for_is_shown() -> None:
    shown = {name for expression in EXPRESSIONS for name in metrics_of(expression)}
    assert {
        "ssop:prefetch_hits:ratio30m",
        "ssop:frames_lost:ratio5m",
        "ssop_router_degraded_total",
        "ssop_router_node_ejected",
        "ssop_router_rate_limit_rps",
        "ssop_router_price",
        "ssop_opinion_post_seconds_bucket",
        "ssop_cache_state_used_bytes",
        "ssop_cache_state_max_bytes",
    } <= shown


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (le) (rate(a_bucket{x="b c",y=~"d"}[$__rate_interval])) / (b > 0)', {"a_bucket", "b"}),
        ("histogram_quantile(0.5, a:b:c) and on () d offset 1d or vector(0)", {"a:b:c", "d"}),
        ("x * on (a, b) y * 3600 / 1e6 > bool 0 unless z", {"x", "y", "z"}),
    ],
)
def test_names_are_read_out_of_expressions(expression: str, names: set[str]) -> None:
    assert metrics_of(expression) == names
