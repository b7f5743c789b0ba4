"""What a decision costs, alone: `python tests/bench/bench_decision.py [--classifier FILE]`.

Microseconds of CPU by number of nodes, each decision timed by itself (what other processes do does not count): without
a score (the classifier excluded and its answer not needed), with a fixed score (both tiers weighed, the classifier
excluded), and with the classifier itself, where there is one. `rebuild` is a snapshot after one node has changed, which
every request causes twice.
"""

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import Tier
from ssop_router.core.complexity import Complexity
from ssop_router.core.decision import Features, decide
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.core.success import SuccessView
from ssop_router.policy_settings import PACKAGED, PolicySettings
from ssop_router.scoring import open_classifier

TEXTS = {
    "en, 217 characters": "what is the mood of this post? " * 7,
    "zh, 100 characters": "这条消息的语气怎么样呢我想知道" * 6 + "这条消息的语气怎么样",
    "en, 2000 characters": "what is the mood of this post? " * 64,
}
NODES = (1, 4, 16, 64)


def mesh(nodes: int) -> Snapshot:
    """Half of each tier (one node: both), a tenth with failures behind it."""
    both = frozenset({Tier.TIER_LITE, Tier.TIER_FULL})
    views = []
    for number in range(nodes):
        tiers = both if nodes == 1 else frozenset({Tier.TIER_LITE if number % 2 else Tier.TIER_FULL})
        model = ModelView("m", ModelState.MODEL_STATE_READY, tiers, 8192, 4, slots_busy=number % 3)
        successes = SuccessView(50.0, float(number % 10 == 3), 0)
        views.append(NodeView(f"n{number}", f"n{number}", (model,), 0, True, number % 3, 0.5, successes=successes))
    return Snapshot(tuple(views))


def measure(call: Callable[[], object], calls: int) -> dict[str, float]:
    """Median and p99 of single calls, in microseconds; the timer's own cost is taken off."""
    clock = time.thread_time_ns
    for _ in range(200):
        call()
    empty = sorted(-(clock() - clock()) for _ in range(2000))[1000]
    times = []
    for _ in range(calls):
        started = clock()
        call()
        times.append(clock() - started - empty)
    times.sort()
    return {
        "median": round(statistics.median(times) / 1000, 1),
        "p99": round(times[int(len(times) * 0.99)] / 1000, 1),
    }


def rebuild(snapshot: Snapshot) -> Snapshot:
    """A snapshot after its first node has changed."""
    first = snapshot.nodes[0]
    return Snapshot((first._replace(in_flight=first.in_flight + 1), *snapshot.nodes[1:]))


def bench(classifier_file: str, calls: int) -> dict[str, Any]:
    """All runs."""
    policy = PolicySettings(classifier_file=classifier_file)
    classifier = open_classifier(policy)
    settings = policy.decision(classifier.threshold)
    fixed = Complexity(0.9)
    results: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "calls": calls,
        "classifier": classifier.model.version if classifier.model is not None else f"none: {classifier.fault}",
        "unit": "us",
    }
    ask = classifier.model.score if classifier.model is not None else None
    for name, text in TEXTS.items():
        features = Features(
            scopes=frozenset({"lite", "full", "rag"}),
            user_text=text,
            prompt_bytes=len(text.encode()),
            max_output_tokens=256,
        )
        rows = {}
        for nodes in NODES:
            snapshot, rng = mesh(nodes), random.Random(1)
            run = partial(decide, features, snapshot, settings, 100, rng)
            rows[f"{nodes} nodes"] = {
                "no score": measure(run, calls),
                "weighed": measure(partial(run, score_text=lambda _: fixed), calls),
                **({"with the classifier": measure(partial(run, score_text=ask), calls)} if ask is not None else {}),
                "rebuild": measure(partial(rebuild, snapshot), calls // 4),
            }
        results[name] = rows
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classifier", default=PACKAGED)
    parser.add_argument("--calls", type=int, default=5_000)
    arguments = parser.parse_args()
    print(json.dumps(bench(arguments.classifier, arguments.calls), indent=2))
