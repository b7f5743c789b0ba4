"""Metrics of alerts. No label holds a tenant, an entity or anything else that posts bring."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_LEAD_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 15.0, 60.0, 300.0)


class AlertMetrics:
    """What the desk counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter(
            "ssop_opinion_alert_events", "What happened to alerts.", ["event", "severity"], registry=registry
        )
        self.messages = Counter(
            "ssop_opinion_alert_messages", "Messages about alerts.", ["channel", "outcome"], registry=registry
        )
        self.open = Gauge("ssop_opinion_alerts_open", "Alerts neither withdrawn nor over.", registry=registry)
        self.broken = Gauge("ssop_opinion_channel_broken", "Channels that need repair.", ["channel"], registry=registry)
        self.lead_s = Histogram(
            "ssop_opinion_alert_lead_seconds",
            "From the post that crosses a rule, received, to its alert.",
            buckets=_LEAD_BUCKETS_S,
            registry=registry,
        )
        self.is_judge = Gauge("ssop_opinion_alert_judge", "This process judges alerts.", registry=registry)
        self.unsaved = Counter("ssop_opinion_alert_store_faults", "Commits that failed.", registry=registry)
        self.forgotten = Gauge(
            "ssop_opinion_rule_entries_forgotten", "Posts that bounds made rules forget.", registry=registry
        )
