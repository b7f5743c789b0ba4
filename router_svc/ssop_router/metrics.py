"""What the router counts. Labels have small bounds: no request ids, tenants or texts."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry

from ssop.v1.mesh_pb2 import CacheReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_chassis.metrics import FIRST_TOKEN_BUCKETS_S
from ssop_chassis.tallies import Counter, Gauge, Histogram

_DECISION_BUCKETS_S: Final = (0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.005)
_SCORE_BUCKETS: Final = tuple(step / 10 for step in range(1, 11))


C = TypeVar("C")


class ByNumber(dict[Any, C]):
    """The children of a family, or several, by what they count, each found once: for what every request counts."""

    def __init__(self, find: Callable[[Any], C]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, number: Any) -> C:
        child = self[number] = self._find(number)
        return child


class RouterMetrics:
    """The router's own metrics, on a registry that is passed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decisions = Counter("ssop_router_decisions", "Decisions.", ["tier", "tier_reason"], registry=registry)
        self.node_choices = Counter(
            "ssop_router_node_choices", "Attempts, by why the node was chosen.", ["node_reason"], registry=registry
        )
        self.trials = Counter(
            "ssop_router_trials",
            "Answers of tiers with a model on trial, by side: stable, canary, shadow.",
            ["tier", "model", "arm", "verdict"],
            registry=registry,
        )
        self.cache_outcomes = Counter(
            "ssop_router_cache_outcomes", "Requests by what happened about the cache.", ["reason"], registry=registry
        )
        self.similar = Counter(
            "ssop_router_similar",
            "Looks for similar answers: found, none, uncited (its passages are not known), late, unavailable.",
            ["outcome"],
            registry=registry,
        )
        self.similar_kept = Counter(
            "ssop_router_similar_kept",
            "Stored answers made findable by their question: kept, unfit (too long), busy, failed.",
            ["outcome"],
            registry=registry,
        )
        self.continuations = Counter(
            "ssop_router_continuations",
            "Answers that were cut after fields: another node's frames went on (taken), or none could (impossible).",
            ["outcome"],
            registry=registry,
        )
        self.retrievals = Counter(
            "ssop_router_retrievals", "Requests by what happened about retrieval.", ["reason"], registry=registry
        )
        self.retrievals_ahead = Counter(
            "ssop_router_retrievals_ahead",
            "Retrievals that began before the request was admitted: used, or wasted on an answer from the cache.",
            ["outcome"],
            registry=registry,
        )
        self.decision_seconds = Histogram(
            "ssop_router_decision_seconds", "Time of a decision.", buckets=_DECISION_BUCKETS_S, registry=registry
        )
        self.classifier_seconds = Histogram(
            "ssop_router_classifier_seconds", "Time of a score.", buckets=_DECISION_BUCKETS_S, registry=registry
        )
        self.complexity = Histogram(
            "ssop_router_complexity", "Scores of the classifier.", buckets=_SCORE_BUCKETS, registry=registry
        )
        self.classifier_loaded = Gauge(
            "ssop_router_classifier_loaded", "1 where the classifier is there, else 0.", ["version"], registry=registry
        )
        self.classifier_fallback = Gauge(
            "ssop_router_classifier_fallback", "1 where the CPU runs it though CUDA was wanted.", registry=registry
        )
        self.abstentions = Counter(
            "ssop_router_abstentions", "Decisions that wanted a score and had none.", ["reason"], registry=registry
        )
        self.rules = Counter("ssop_router_rules", "Decisions by a rule.", ["rule"], registry=registry)
        self.weak_signals = Counter(
            "ssop_router_weak_signals",
            "Decisions that were made without a signal, or with an old one.",
            ["signal", "weakness"],
            registry=registry,
        )
        self.conversation_switches = Counter(
            "ssop_router_conversation_switches", "Conversations that changed their tier.", ["tier"], registry=registry
        )
        self.cache_first = Gauge(
            "ssop_router_cache_first", "1 while too much fails and stored answers go first.", registry=registry
        )
        self.attempt_outcomes = Counter(
            "ssop_router_attempt_outcomes", "Attempts at nodes, as they count.", ["outcome"], registry=registry
        )
        self.node_status_age_seconds = Gauge(
            "ssop_router_node_status_age_seconds",
            "Age of a node's last status; -1 before the first one.",
            ["address"],
            registry=registry,
        )
        # The thread that writes the log counts too.
        self.decisions_not_logged = prometheus_client.Counter(
            "ssop_router_decisions_not_logged", "Decisions that the decision log lacks.", ["reason"], registry=registry
        )
        self.first_field_seconds = Histogram(
            "ssop_router_first_field_seconds",
            "Time from arrival to the first field.",
            ["tier"],
            buckets=FIRST_TOKEN_BUCKETS_S,
            registry=registry,
        )
        self.requests = Counter("ssop_router_requests", "Requests by how they ended.", ["outcome"], registry=registry)
        self.degraded = Counter("ssop_router_degraded", "Degraded answers, by level.", ["level"], registry=registry)
        self._begin()
        self.ejections = Counter(
            "ssop_router_ejections",
            "Times that a rule spoke against a node, by rule and by what came of it.",
            ["rule", "verdict"],
            registry=registry,
        )
        self.ejected = Gauge("ssop_router_node_ejected", "1 while a node is out.", ["address"], registry=registry)
        self.probes = Counter("ssop_router_probes", "Tries of nodes that are out.", ["outcome"], registry=registry)
        self.hints = Counter(
            "ssop_router_hints",
            "Hints of other routers about nodes: taken, or ignored (old, or of a node that is out or not known here).",
            ["outcome"],
            registry=registry,
        )
        self.is_hinting = Gauge(
            "ssop_router_hints_shared",
            "1 while what this router takes out is exchanged with others; 0: each judges alone.",
            registry=registry,
        )
        self.watch_faults = Counter(
            "ssop_router_watch_faults", "Times that watching the nodes failed as nobody foresaw.", registry=registry
        )
        self.refused_by_nodes = Counter(
            "ssop_router_node_refusals", "Attempts that a full node turned away.", registry=registry
        )
        self.failed_attempts = Counter(
            "ssop_router_failed_attempts", "Attempts at nodes that failed.", ["reason"], registry=registry
        )
        self.cascades = Counter(
            "ssop_router_cascades",
            "Cascades by whose answer was delivered: kept, escalated, fallback or none.",
            ["outcome", "reason"],
            registry=registry,
        )
        self.in_flight = Gauge("ssop_router_in_flight", "Requests that run.", registry=registry)
        self._count_frames(registry)
        self._count_costs(registry)
        self.loop_lag = Counter(
            "ssop_router_loop_lag_seconds",
            "Time for which the loop was late while the cache service was waited for; it counts for no time-out.",
            registry=registry,
        )
        self.unavailable = Counter(
            "ssop_router_unavailable", "Requests served without a dependency.", ["dependency"], registry=registry
        )
        self.rate_share = Gauge(
            "ssop_router_rate_share", "Share of the full rate that nodes can bear, from 0 to 1.", registry=registry
        )
        self.rate_limit_rps = Gauge(
            "ssop_router_rate_limit_rps",
            "Requests per second and tenant, mesh-wide, that are let in now; 0 is no limit, -1 unknown.",
            registry=registry,
        )
        self.limits_local = Gauge(
            "ssop_router_limits_local", "1 while this router holds its share of limits by itself.", registry=registry
        )
        self.local_admissions = Counter(
            "ssop_router_local_admissions",
            "Requests held to this router's share, as the shared limits could not be asked.",
            ["outcome"],
            registry=registry,
        )
        self.budgets_unchecked = Counter(
            "ssop_router_budgets_unchecked", "Requests whose token budget nobody could check.", registry=registry
        )
        self.not_stored = Counter(
            "ssop_router_answers_not_stored", "Answers that were not stored.", ["reason"], registry=registry
        )
        self.settle_failures = Counter(
            "ssop_router_settle_failures", "Reservations that were left to lapse.", registry=registry
        )
        self.renewal_failures = Counter(
            "ssop_router_renewal_failures",
            "Times that leases and reservations could not be renewed; the next try is soon.",
            registry=registry,
        )
        self.keys_age_seconds = Gauge(
            "ssop_router_keys_age_seconds", "Age of the copy of the mesh's API keys.", registry=registry
        )
        self.keys_reload_failures = Counter(
            "ssop_router_keys_reload_failures", "Times the keys could not be read again.", ["source"], registry=registry
        )

    def _begin(self) -> None:
        """A rate needs a zero to begin with; what each request counts is looked up in one step."""
        self.node_choices_of = ByNumber(lambda reason: self.node_choices.labels(NodeReason.Name(reason)))
        self.decisions_of = ByNumber(lambda both: self.decisions.labels(Tier.Name(both[0]), TierReason.Name(both[1])))
        self.first_field_of = ByNumber(lambda tier: self.first_field_seconds.labels(Tier.Name(tier)))
        self.ends_of = ByNumber(
            lambda end: (
                self.requests.labels(end[0]),
                self.cache_outcomes.labels(CacheReason.Name(end[1])),
                self.retrievals.labels(RetrievalReason.Name(end[2])),
            )
        )
        self.requests.labels("OK")
        for level in ("1", "2", "3"):
            self.degraded.labels(level)

    def set_price(self, tier: Tier.ValueType, input_price: float, output_price: float) -> None:
        """What a million tokens of a tier cost."""
        self._price.labels(Tier.Name(tier), "input").set(input_price)
        self._price.labels(Tier.Name(tier), "output").set(output_price)

    def _count_costs(self, registry: CollectorRegistry) -> None:
        charged = Counter(
            "ssop_router_charged_tokens", "Tokens charged to tenants.", ["tier", "kind"], registry=registry
        )
        self.charged_of = ByNumber(lambda tier: [charged.labels(Tier.Name(tier), kind) for kind in ("input", "output")])
        """By tier: tokens of prompts and of answers."""
        self._price = Gauge(
            "ssop_router_price", "What a million tokens of a tier cost.", ["tier", "kind"], registry=registry
        )

    def _count_frames(self, registry: CollectorRegistry) -> None:
        self.frames_sent = Counter("ssop_router_frames_sent", "Document frames sent.", registry=registry)
        self.frames_received = Counter(
            "ssop_router_frames_received", "Document frames received, by clients' receipts.", registry=registry
        )
        self.frames_verified = Counter(
            "ssop_router_frames_verified", "Document frames verified, by clients' receipts.", registry=registry
        )
        self.frames_lost = Counter(
            "ssop_router_frames_lost",
            "Document frames that went out and, by clients' receipts, did not arrive.",
            registry=registry,
        )
        self.frames_dropped = Counter(
            "ssop_router_frames_dropped", "Document frames that a failpoint of a test lost.", registry=registry
        )


class DiscoveryMetrics:
    """Of a router whose nodes join and leave at run time."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.node_source_up = Gauge(
            "ssop_router_node_source_up",
            "1 while a source of nodes can be read; 0: its last list holds.",
            ["source"],
            registry=registry,
        )
        self.node_source_age_seconds = Gauge(
            "ssop_router_node_source_age_seconds",
            "Time since the last good reading of a source of nodes, or since the start.",
            ["source"],
            registry=registry,
        )
        self.node_changes = Counter(
            "ssop_router_node_changes", "Nodes that joined and left at run time.", ["change"], registry=registry
        )
        self.nodes_refused = Gauge(
            "ssop_router_nodes_refused", "Nodes that are left out, since there are too many.", registry=registry
        )
        self.announcements_refused = Counter(
            "ssop_router_announcements_refused",
            "Announcements of nodes, each time that they are read: not believed, or of a network that is not allowed.",
            ["reason"],
            registry=registry,
        )
