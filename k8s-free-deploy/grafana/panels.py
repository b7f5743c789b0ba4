"""Panels of the dashboards, as the SDK builds them. Colours carry one meaning: red is what somebody should look at."""

from collections.abc import Sequence
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, Row, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.statetimeline import Panel as States
from grafana_foundation_sdk.builders.timeseries import Panel as Series
from grafana_foundation_sdk.models.common import BigValueColorMode, BigValueGraphMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, Threshold, ThresholdsMode

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${source}")
Query = tuple[str, str]
"""An expression, and the legend of its series."""
Panel = Series | Stat | States
RED, YELLOW, GREEN = "red", "yellow", "green"


def _query(number: int, query: Query) -> Dataquery:
    expression, legend = query
    return Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number)).datasource(SOURCE)


def steps(first: str, *more: tuple[float, str]) -> ThresholdsConfig:
    """Colours from minus infinity up: the first one, and each of the others from its value on."""
    thresholds = [Threshold(value=None, color=first), *(Threshold(value=value, color=color) for value, color in more)]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(thresholds)


def series(title: str, about: str, unit: str, *queries: Query) -> Series:
    """Lines over time."""
    panel = Series().title(title).description(about).unit(unit).datasource(SOURCE).min(0).height(8).span(8)
    for number, query in enumerate(queries):
        panel.with_target(_query(number, query))
    return panel


def number(title: str, about: str, unit: str, thresholds: ThresholdsConfig, query: Query) -> Stat:
    """One number, now, in the colour of its worth, over the line of its past."""
    panel = Stat().title(title).description(about).unit(unit).datasource(SOURCE).thresholds(thresholds)
    panel.color_mode(BigValueColorMode.BACKGROUND).graph_mode(BigValueGraphMode.AREA).height(8).span(4)
    return panel.with_target(_query(0, query))


def states(title: str, about: str, thresholds: ThresholdsConfig, query: Query) -> States:
    """A bar for each series, coloured by its value over time."""
    panel = States().title(title).description(about).datasource(SOURCE).thresholds(thresholds).height(8).span(12)
    return panel.with_target(_query(0, query))


def dashboard(title: str, name: str, about: str, rows: Sequence[tuple[str, Sequence[Panel]]]) -> Dashboard:
    """Rows of panels over a Prometheus that the viewer chooses."""
    board = Dashboard(title).uid(name).description(about).tags(["ssop"]).refresh("15s").time("now-3h", "now")
    board.with_variable(DatasourceVariable("source").label("Prometheus").type("prometheus"))
    for heading, panels in rows:
        board.with_row(Row(heading))
        for panel in panels:
            board.with_panel(panel)
    return board
