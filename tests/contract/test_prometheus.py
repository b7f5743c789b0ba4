"""Rules and configuration of Prometheus: they load, do what their tests say, and speak of metrics that exist."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from helpers.dashboards import metrics_of
from ssop_cache.metrics import CacheMetrics
from ssop_chassis.metrics import CallMetrics
from ssop_ebpf.settings import EbpfSettings
from ssop_gateway.metrics import GatewayMetrics
from ssop_gateway.settings import GatewaySettings
from ssop_inference.metrics import NodeMetrics
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.settings import OpinionSettings
from ssop_rag.observations import RagMetrics
from ssop_router.metrics import RouterMetrics

DEPLOY = Path(__file__).resolve().parents[2] / "k8s-free-deploy"
FOLDER = DEPLOY / "prometheus"
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "ssop.rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
RECORDS = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
TESTS = sorted(FOLDER.glob("*.test.yml"))


def promtool(*words: str) -> None:
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("prometheus")
def test_configuration_and_rules_load() -> None:
    promtool("check", "config", "prometheus.yml")


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_rules_do_what_their_tests_say(path: Path) -> None:
    promtool("test", "rules", path.name)


def test_only_what_a_person_must_see_at_once_pages() -> None:
    pages = {rule["alert"] for rule in ALERTS if rule["labels"]["severity"] == "page"}
    assert pages == {"SsopRequestsFail", "SsopFramesLost"}
    assert {rule["labels"]["severity"] for rule in ALERTS} == {"page", "ticket"}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_has_a_runbook_entry_and_a_test(rule: dict[str, Any]) -> None:
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (DEPLOY.parent / path).read_text(), re.MULTILINE)
    assert anchor in {heading.lower() for heading in headings}
    assert rule["alert"].lower() == anchor
    assert any(rule["alert"] in test.read_text() for test in TESTS)


def known_metrics() -> set[str]:
    """Names of samples that the services and the exporter give."""
    registry = CollectorRegistry()
    for kind in (RouterMetrics, CacheMetrics, NodeMetrics, RagMetrics, CallMetrics, GatewayMetrics, OpinionMetrics):
        kind(registry)
    names = {"up", "ALERTS"}
    for family in registry.collect():
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        names |= {family.name + ending for ending in endings}
    exporter = (DEPLOY.parent / "services" / "ssop_ebpf" / "collector.py").read_text()
    for kind, name in re.findall(r"(Counter|Gauge|Histogram)MetricFamily\(\s*\"(\w+)\"", exporter):
        endings = {"Counter": ["_total"], "Histogram": ["_bucket", "_count", "_sum"]}.get(kind, [""])
        names |= {name + ending for ending in endings}
    return names


def test_targets_are_the_ports_of_the_units() -> None:
    units = "".join(path.read_text() for path in (DEPLOY / "systemd").glob("*.service"))
    listened = dict(re.findall(r"METRICS_LISTEN=\{\"(\w+)\": \"([\d.:%i]+)\"", units))
    targets = {
        group["labels"]["job"].removeprefix("ssop-"): group["targets"]
        for group in yaml.safe_load((FOLDER / "targets" / "ssop.yml").read_text())
    }
    for service, address in listened.items():
        assert targets[service] in ([address], [address.replace("%i", "0"), address.replace("%i", "1")])
    assert set(listened) | {"gateway", "ebpf"} == set(targets)
    assert targets["ebpf"] == [EbpfSettings.model_fields["listen"].default]
    assert targets["gateway"] == GatewaySettings.model_fields["listen"].default


def test_the_opinion_application_is_watched_where_it_listens() -> None:
    (group,) = yaml.safe_load((FOLDER / "targets" / "opinion.yml.example").read_text())
    assert group["targets"] == OpinionSettings.model_fields["listen"].default


def test_rules_speak_of_metrics_that_exist() -> None:
    known = known_metrics() | RECORDS
    expressions = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    used = {name for expression in expressions for name in metrics_of(expression)}
    assert used - known == set()
    assert len(used) > 20


def test_dashboards_speak_of_metrics_that_exist() -> None:
    from helpers.dashboards import EXPRESSIONS  # noqa: PLC0415 - read from the committed files

    used = {name for expression in EXPRESSIONS for name in metrics_of(expression)}
    assert used - known_metrics() - RECORDS == set()
