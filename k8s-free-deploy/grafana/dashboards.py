"""Writes the dashboards beside this file: `python dashboards.py [FOLDER]`. A test holds the committed JSON in step.

Needs the dependency group `grafana`.
"""

import sys
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from panels import GREEN, RED, YELLOW, dashboard, number, series, states, steps

_RATE: Final = "$__rate_interval"


def quantile(share: float, metric: str, *labels: str) -> str:
    """A quantile of a histogram, by labels."""
    by = ", ".join(["le", *labels])
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket[{_RATE}])))"


def rate(metric: str, *labels: str) -> str:
    """A counter's rate, by labels."""
    return f"sum by ({', '.join(labels)}) (rate({metric}[{_RATE}]))" if labels else f"sum(rate({metric}[{_RATE}]))"


def mesh() -> Dashboard:
    """What users of the mesh get, and why."""
    requests = [
        number(
            "Failed, 5 min",
            "Share of requests that the mesh failed; what callers did is none.",
            "percentunit",
            steps(GREEN, (0.01, YELLOW), (0.144, RED)),
            ("ssop:request_errors:ratio5m", "failed"),
        ),
        number(
            "Served",
            "Red while nobody is served.",
            "bool_yes_no",
            steps(RED, (1, GREEN)),
            ("1 - ssop:mesh_down", "served"),
        ),
        series(
            "Requests",
            "By how they ended.",
            "reqps",
            (rate("ssop_router_requests_total", "outcome"), "{{outcome}}"),
        ),
        series(
            "First field",
            "From arrival to the first field frame, by tier.",
            "s",
            (quantile(0.5, "ssop_router_first_field_seconds", "tier"), "{{tier}} p50"),
            (quantile(0.95, "ssop_router_first_field_seconds", "tier"), "{{tier}} p95"),
        ),
    ]
    prefetch = [
        number(
            "Prefetch hits, 30 min",
            "Share of prefetches that were used. Red below 60 %: they cost more than they save.",
            "percentunit",
            steps(RED, (0.6, GREEN)),
            ("ssop:prefetch_hits:ratio30m", "hits"),
        ),
        series(
            "Prefetches",
            "By what became of them.",
            "ops",
            (rate("ssop_rag_prefetches_total", "outcome"), "{{outcome}}"),
        ),
        series(
            "Time saved and spent",
            "Seconds a second that requests did not wait, and that prefetches worked for nothing.",
            "s",
            (rate("ssop_rag_prefetch_saved_seconds_total"), "saved"),
            (rate("ssop_rag_prefetch_wasted_seconds_total"), "spent for nothing"),
        ),
    ]
    frames = [
        number(
            "Frames lost, 5 min",
            "Share of frames that clients' receipts miss.",
            "percentunit",
            steps(GREEN, (0.001, RED)),
            ("ssop:frames_lost:ratio5m", "lost"),
        ),
        number(
            "Lost inside, 5 min",
            "Share of the frames that nodes sent and no router received, as the kernel sees it.",
            "percentunit",
            steps(GREEN, (0.005, RED)),
            ("ssop:frames_lost_inside:ratio5m", "lost"),
        ),
        series(
            "Frames",
            "Sent by routers; received and verified by clients, as receipts say. Who sends none widens the gap.",
            "ops",
            (rate("ssop_router_frames_sent_total"), "sent"),
            (rate("ssop_router_frames_received_total"), "received"),
            (rate("ssop_router_frames_verified_total"), "verified"),
            (rate("ssop_router_frames_lost_total"), "lost"),
        ),
    ]
    ladder = [
        series(
            "Degraded answers",
            "By level: 1 a stored similar answer, 2 the backup lite model, 3 the canned document.",
            "reqps",
            (rate("ssop_router_degraded_total", "level"), "level {{level}}"),
        ),
        series(
            "Attempts",
            "At nodes, as they count.",
            "ops",
            (rate("ssop_router_attempt_outcomes_total", "outcome"), "{{outcome}}"),
        ),
        series("Tiers", "Decisions by tier.", "ops", (rate("ssop_router_decisions_total", "tier"), "{{tier}}")),
    ]
    nodes = [
        states(
            "Nodes that are out",
            "Red while any router has the node out of the rotation.",
            steps(GREEN, (1, RED)),
            ("max by (address) (ssop_router_node_ejected)", "{{address}}"),
        ),
        states(
            "Services",
            "Red while a service does not tell its metrics.",
            steps(RED, (1, GREEN)),
            ('up{job=~"ssop-.*"}', "{{job}} {{instance}}"),
        ),
        series(
            "Slots and queues",
            "Slots in use, and requests that wait for one, by model.",
            "short",
            ("sum by (gen_ai_request_model) (ssop_inference_slots_busy)", "{{gen_ai_request_model}} busy"),
            ("sum by (gen_ai_request_model) (ssop_inference_queue_length)", "{{gen_ai_request_model}} waiting"),
        ),
        series(
            "Tokens",
            "Generated a second, by model.",
            "short",
            ("sum by (gen_ai_request_model) (ssop_inference_output_tokens_per_second)", "{{gen_ai_request_model}}"),
        ),
        series(
            "Age of nodes' status",
            "Routers decide by it.",
            "s",
            ("max by (address) (ssop_router_node_status_age_seconds)", "{{address}}"),
        ),
    ]
    limits = [
        series(
            "Rate limit",
            "Requests per second and tenant that are let in now; 0 is no limit.",
            "reqps",
            ("min(ssop_router_rate_limit_rps)", "limit"),
        ),
        number(
            "Nodes can bear",
            "Share of the full rate.",
            "percentunit",
            steps(RED, (0.5, YELLOW), (0.9, GREEN)),
            ("min(ssop_router_rate_share)", "share"),
        ),
        number(
            "Turned away, 15 min",
            "Share of requests for which there was no room.",
            "percentunit",
            steps(GREEN, (0.01, YELLOW), (0.05, RED)),
            ("ssop:turned_away:ratio15m", "turned away"),
        ),
        series(
            "In flight", "Requests that run.", "short", ("sum by (instance) (ssop_router_in_flight)", "{{instance}}")
        ),
    ]
    costs = [
        series(
            "Cost an hour",
            "Of charged tokens, at the router's prices, by tier.",
            "currencyUSD",
            (
                f"sum by (tier) (rate(ssop_router_charged_tokens_total[{_RATE}])"
                " * on (instance, tier, kind) ssop_router_price) * 3600 / 1e6",
                "{{tier}}",
            ),
        ),
        series("Charged tokens", "A second.", "short", (rate("ssop_router_charged_tokens_total", "kind"), "{{kind}}")),
        series(
            "Words embedded for prefetches",
            "A second, whether they were used or not.",
            "short",
            (rate("ssop_rag_prefetch_tokens_total"), "words"),
        ),
    ]
    stores = [
        states(
            "Redis",
            "Red while instances of the role do not answer.",
            steps(RED, (1, GREEN)),
            ("min by (role) (ssop_cache_store_up)", "{{role}}"),
        ),
        number(
            "State used",
            "Share of the memory of the fullest instance of the state. Once it is full, nobody is admitted.",
            "percentunit",
            steps(GREEN, (0.75, YELLOW), (0.9, RED)),
            ("max(ssop_cache_state_used_bytes / (ssop_cache_state_max_bytes > 0))", "used"),
        ),
        series(
            "Memory of the state",
            "Keys, quotas, leases and streams in its fullest instance, and the most that it may hold.",
            "bytes",
            ("max(ssop_cache_state_used_bytes)", "used"),
            ("max(ssop_cache_state_max_bytes > 0)", "most"),
        ),
        series(
            "Look-ups", "Of the cache, by outcome.", "ops", (rate("ssop_cache_lookups_total", "outcome"), "{{outcome}}")
        ),
    ]
    posts = [
        series(
            "Posts",
            "That came to the opinion application, by what became of them at its doors.",
            "ops",
            (rate("ssop_opinion_posts_total", "outcome"), "{{outcome}}"),
        ),
        series(
            "Records",
            "Posts that are through, by verdict.",
            "ops",
            (rate("ssop_opinion_records_total", "verdict"), "{{verdict}}"),
        ),
        series(
            "From door to record",
            "How long a post takes.",
            "s",
            (quantile(0.5, "ssop_opinion_post_seconds"), "p50"),
            (quantile(0.99, "ssop_opinion_post_seconds"), "p99"),
        ),
        series(
            "Waiting and dead",
            "Posts that wait or are worked on, and dead letters that are kept.",
            "short",
            ("max(ssop_opinion_queue_posts)", "posts"),
            ("max by (tenant) (ssop_opinion_tenant_queue_posts)", "{{tenant}}"),
            ("max(ssop_opinion_dead_letters_kept)", "dead letters"),
        ),
        series(
            "Dead letters",
            "What became no record, by reason.",
            "ops",
            (rate("ssop_opinion_dead_letters_total", "reason"), "{{reason}}"),
        ),
    ]
    rows = [
        ("Requests", requests),
        ("Prefetch", prefetch),
        ("Frames", frames),
        ("Ladder", ladder),
        ("Nodes", nodes),
        ("Limits", limits),
        ("Costs", costs),
        ("Stores", stores),
        ("Opinion", posts),
    ]
    return dashboard("SSOP Mesh", "ssop-mesh", "What users of the mesh get, and why.", rows)


def kernel() -> Dashboard:
    """What the kernel sees, host by host."""
    frames = [
        series(
            "Frames by service",
            "Made by a codec, sent and received by a service, decoded by a client.",
            "ops",
            (rate("ssop_ebpf_frames_total", "service", "event"), "{{service}} {{event}}"),
        ),
        series(
            "Node to router",
            "Two lines that lie on each other, or frames are lost between them.",
            "ops",
            ('sum(rate(ssop_ebpf_frames_total{service="inference",event="sent"}[$__rate_interval]))', "sent by nodes"),
            (
                'sum(rate(ssop_ebpf_frames_total{service="router",event="received"}[$__rate_interval]))',
                "received by routers",
            ),
        ),
        series(
            "Router to clients of watched hosts",
            "Clients on other hosts are missing from the second line.",
            "ops",
            ('sum(rate(ssop_ebpf_frames_total{service="router",event="sent"}[$__rate_interval]))', "sent by routers"),
            (
                'sum(rate(ssop_ebpf_frames_total{service="client",event="decoded"}[$__rate_interval])'
                ' or rate(ssop_ebpf_frames_total{service="gateway",event="received"}[$__rate_interval]))',
                "came to clients and the HTTP edge",
            ),
        ),
        series(
            "Bytes by service",
            "Of frames, or of the chunks that held them.",
            "Bps",
            (rate("ssop_ebpf_frame_bytes_total", "service", "event"), "{{service}} {{event}}"),
        ),
    ]
    times = [
        series(
            "Frame latency",
            "From a frame's making to its decoding, where both happen on one host.",
            "s",
            (quantile(0.5, "ssop_ebpf_frame_latency_seconds"), "p50"),
            (quantile(0.99, "ssop_ebpf_frame_latency_seconds"), "p99"),
        ),
        series(
            "Held by a router",
            "From the oldest chunk that it held to its sending it on.",
            "s",
            (quantile(0.5, "ssop_ebpf_relay_seconds"), "p50"),
            (quantile(0.99, "ssop_ebpf_relay_seconds"), "p99"),
        ),
        series(
            "Decisions",
            "Time of a decision.",
            "s",
            (quantile(0.5, "ssop_ebpf_decision_seconds", "tier"), "{{tier}} p50"),
            (quantile(0.99, "ssop_ebpf_decision_seconds", "tier"), "{{tier}} p99"),
        ),
        series(
            "Age of prefetches",
            "When they were used, or were for nothing.",
            "s",
            (quantile(0.5, "ssop_ebpf_prefetch_age_seconds", "use"), "{{use}} p50"),
        ),
    ]
    itself = [
        states(
            "Probes",
            "Red where a probe is watched in no file of a host.",
            steps(RED, (1, GREEN)),
            ("max by (instance, probe) (ssop_probe_attached)", "{{instance}} {{probe}}"),
        ),
        series(
            "Uncounted",
            "Hits that the kernel had no room to count, and probes that could not be watched.",
            "ops",
            (rate("ssop_ebpf_hits_uncounted_total"), "hits"),
            (rate("ssop_ebpf_attach_failures_total"), "probes"),
        ),
    ]
    rows = [("Frames", frames), ("Times", times), ("The exporter", itself)]
    return dashboard("SSOP hosts", "ssop-hosts", "What the kernel of each host sees of the mesh.", rows)


DASHBOARDS: Final = {"mesh.json": mesh, "hosts.json": kernel}


def write(folder: Path) -> None:
    """Write every dashboard."""
    for name, build in DASHBOARDS.items():
        (folder / name).write_text(JSONEncoder(sort_keys=True, indent=2).encode(build().build()) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
