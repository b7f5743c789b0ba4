"""The classifier as RouteLLM judges routers, always beside prompt length and the rules; leave-one-source-out; speed.

Reads `routing` below $SSOP_SUITES. Parts by name (all without): speed, fixed, gold, tasks, chinese. `--rehearse`
shuffles all labels of the evaluation sets first: it tries this program without a look at them. Every real run of a set
counts; docs/benchmarks/classifier.md publishes the count. `gold` needs lightgbm, and wordllama's files with tokenizers
and safetensors for its second half.
"""

import argparse
import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.train_classifier import read_tasks  # noqa: E402

from ssop.v1.mesh_pb2 import Tier  # noqa: E402 - the tree comes first
from ssop_router.classification.training import recipe  # noqa: E402
from ssop_router.classification.training.fitting import (  # noqa: E402
    fit_grams,
    fit_ridge,
    normalise_grams,
    weigh_grams,
)
from ssop_router.classification.training.measures import Routing, measure_balance, measure_routing  # noqa: E402
from ssop_router.classification.training.rows import Row, read_lines  # noqa: E402
from ssop_router.classifier import SHIPPED, OnnxComplexityModel, load_classifier  # noqa: E402
from ssop_router.core.rules import make_excerpt  # noqa: E402
from ssop_router.settings import RouterSettings  # noqa: E402

Floats = NDArray[np.float64]
GOLD_ROWS: Final = 1500
GOLD_SEEDS: Final = 5
GOLD_CHARS: Final = 2000
NEIGHBOURS: Final = 100
TREE_SEEDS: Final = 8
GOLD_GRAM_PENALTY: Final = 15.0
GOLD_LINEAR_PENALTY: Final = 300.0
RULES: Final = RouterSettings(nodes=["127.0.0.1:1"], keys_file=Path("keys")).decision().rules


@dataclass(frozen=True, slots=True)
class Suite:
    """An evaluation set: texts with the qualities of a weak and a strong model."""

    name: str
    texts: list[str]
    weak: Floats
    strong: Floats


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def read_suite(folder: Path, name: str, *, shuffles: bool) -> Suite:
    """The rows of a set that are not contaminated; MT-Bench's qualities are means of both turns."""
    rows = [row for _, row in read_lines(folder / f"{name}.jsonl.gz") if str(row.get("contaminated", "0")) == "0"]
    pairs = np.array([[_quality(row["weak"]), _quality(row["strong"])] for row in rows])
    if shuffles:
        np.random.default_rng(1).shuffle(pairs)
    return Suite(name, [row["prompt"] for row in rows], pairs[:, 0], pairs[:, 1])


def _quality(value: Any) -> float:
    value = json.loads(value) if isinstance(value, str) else value
    return float(np.mean(value))


def rule_score(text: str) -> float:
    """What the shipped rules say: 1 full, 0 lite, 0.5 where none speaks."""
    seen = make_excerpt(text)
    for rule in RULES:
        if rule.applies(seen, len(text), 0):
            return 1.0 if rule.tier == Tier.TIER_FULL else 0.0
    return 0.5


def shipped_scores(classifier: OnnxComplexityModel, texts: Sequence[str]) -> Floats:
    """Scores of the shipped model; an abstention counts as the middle."""
    found = [classifier.score(text) for text in texts]
    return np.array([0.5 if one.score is None else one.score for one in found])


def show_routing(name: str, scores: dict[str, Floats], suite: Suite) -> None:
    """One table row a score, with its lead over length."""
    length = np.array([float(len(text)) for text in suite.texts])
    say(f"\n{name}: {len(suite.texts)} prompts, {suite.weak.mean():.4f} -> {suite.strong.mean():.4f}")
    say("| score | APGR [95 %] | CPT50 [95 %] | CPT80 [95 %] | lead over length [95 %] |")
    say("|---|---|---|---|---|")
    for label, score in (scores | {"length": length, "rules": np.array([*map(rule_score, suite.texts)])}).items():
        found = measure_routing(score, suite.weak, suite.strong, reference=length)
        say(f"| {label} | {found.apgr} | {_per_cent(found, 50)} | {_per_cent(found, 80)} | {found.lead} |")


def _per_cent(found: Routing, share: int) -> str:
    cell = found.cpt50 if share == 50 else found.cpt80
    return f"{cell.value:.1f} [{cell.low:.1f}, {cell.high:.1f}]"


def run_fixed(folder: Path, *, shuffles: bool) -> None:
    """The shipped model, no label of these sets seen."""
    classifier = load_classifier()
    for name in ("eval_mtbench", "eval_mmlu", "eval_gsm8k"):
        suite = read_suite(folder, name, shuffles=shuffles)
        show_routing(name, {"shipped": shipped_scores(classifier, suite.texts)}, suite)


def run_chinese(folder: Path, *, shuffles: bool) -> None:
    """The shipped model, and one that learned from 2,000 restricted CMMLU training rows and is never shipped."""
    classifier = load_classifier()
    restricted = [row for _, row in read_lines(folder / "train_gt_restricted.jsonl.gz") if row["lang"] == "zh"]
    predict = fit_restricted([row["prompt"] for row in restricted], [1 - float(row["weak"]) for row in restricted])
    for name in ("eval_zh_cmmlu_restricted", "eval_zh_ceval_restricted", "eval_zh_lawbench"):
        suite = read_suite(folder, name, shuffles=shuffles)
        scores = {"shipped": shipped_scores(classifier, suite.texts), "with restricted labels": predict(suite.texts)}
        show_routing(name, scores, suite)


def fit_restricted(texts: list[str], failures: list[float]) -> Callable[[Sequence[str]], Floats]:
    """A ridge over n-grams of texts on whether the weak model fails."""
    rows = recipe.read_features([Row(text, "", "") for text in texts], recipe.GRAM_BITS)
    predict = learn_grams(rows.grams, np.array(failures), recipe.GRAM_PENALTY)
    return lambda wanted: predict(recipe.read_features([Row(text, "", "") for text in wanted], recipe.GRAM_BITS).grams)


def learn_grams(rows: Any, target: Floats, penalty: float) -> Callable[[Any], Floats]:
    """A ridge over the n-grams of rows."""
    idf = weigh_grams(rows)
    weights = fit_grams(normalise_grams(rows, idf), target - target.mean(), np.ones(len(target)), penalty)
    return lambda others: np.asarray(normalise_grams(others, idf) @ weights, np.float64)


def learn_linear(dense: NDArray[np.float32], gain: Floats) -> Callable[[NDArray[np.float32]], Floats]:
    """A ridge over the dense features, standardised and held within four deviations."""
    mean, deviation = dense.mean(axis=0), dense.std(axis=0) + 1e-6

    def expand(rows: NDArray[np.float32]) -> Floats:
        standard = np.clip((rows - mean) / deviation, -4, 4).astype(np.float64)
        return np.hstack([np.ones((len(rows), 1)), standard])

    coefficients = fit_ridge(expand(dense), gain, np.ones(len(gain)), GOLD_LINEAR_PENALTY)
    return lambda rows: np.asarray(expand(rows) @ coefficients, np.float64)


def run_gold(folder: Path, *, shuffles: bool) -> None:
    """1,500 random MMLU labels, five times: trees, neighbours, n-grams, a linear model, and the sum of their ranks.

    What is summed, and all settings, were chosen on the training rows (1,500 of MMLU-Pro's, and of all sources).
    """
    suite = read_suite(folder, "eval_mmlu", shuffles=shuffles)
    texts = [text[:GOLD_CHARS] for text in suite.texts]
    features = recipe.read_features([Row(text, "", "") for text in texts], recipe.GRAM_BITS)
    dense, grams = features.dense, features.grams
    vectors = embed(texts)
    found: dict[str, list[Routing]] = {}
    for seed in range(GOLD_SEEDS):
        order = np.random.default_rng(seed).permutation(len(texts))
        gold, rest = order[:GOLD_ROWS], order[GOLD_ROWS:]
        gain = suite.strong - suite.weak
        scores = {"length": np.array([float(len(suite.texts[at])) for at in rest])}
        scores["rules"] = np.array([rule_score(suite.texts[at]) for at in rest])
        scores["trees"] = grow_trees(dense[gold], gain[gold])(dense[rest])
        scores["n-grams"] = learn_grams(grams[gold], gain[gold], GOLD_GRAM_PENALTY)(grams[rest])
        scores["linear"] = learn_linear(dense[gold], gain[gold])(dense[rest])
        if vectors is not None:
            near = np.argpartition(-(vectors[rest] @ vectors[gold].T), NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
            scores["neighbours"] = gain[gold][near].mean(axis=1)
            parts = ("trees", "neighbours", "n-grams", "linear")
            scores["all four"] = np.sum([_ranks(scores[part]) for part in parts], axis=0)
        for name, score in scores.items():
            one = measure_routing(score, suite.weak[rest], suite.strong[rest], draws=2)
            found.setdefault(name, []).append(one)
    say(f"\neval_mmlu, {GOLD_ROWS} labels, {GOLD_SEEDS} random parts: mean and standard deviation over the parts")
    say("| score | APGR | CPT50 | CPT80 |")
    say("|---|---|---|---|")
    for name, all_of_it in found.items():
        cells = [[getattr(one, part).value for one in all_of_it] for part in ("apgr", "cpt50", "cpt80")]
        shown = [f"{np.mean(cell):.3f} +- {np.std(cell):.3f}" for cell in cells]
        say(f"| {name} | {' | '.join(shown)} |")


def grow_trees(dense: NDArray[np.float32], gain: Floats) -> Callable[[NDArray[np.float32]], Floats]:
    """Boosted trees on gains: shallow and few, for 1,500 noisy labels; the sum over several seeds."""
    import lightgbm  # noqa: PLC0415 - only this part needs it

    settings = {"num_leaves": 7, "learning_rate": 0.05, "min_data_in_leaf": 30, "feature_fraction": 0.5}
    settings |= {"bagging_fraction": 0.8, "bagging_freq": 1, "verbose": -1, "deterministic": True, "num_threads": 1}
    grown = [
        lightgbm.train(settings | {"objective": "l2", "seed": seed}, lightgbm.Dataset(dense, gain), num_boost_round=120)
        for seed in range(TREE_SEEDS)
    ]
    return lambda rows: np.sum([trees.predict(rows) for trees in grown], axis=0, dtype=np.float64)


def embed(texts: Sequence[str]) -> NDArray[np.float32] | None:
    """Unit vectors of texts: means of wordllama's token vectors, from the files of its wheel; None without it."""
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None or importlib.util.find_spec("tokenizers") is None:
        say("not run: neighbours need wordllama, tokenizers and safetensors")
        return None
    from safetensors.numpy import load_file  # noqa: PLC0415 - only this part needs it
    from tokenizers import Tokenizer  # noqa: PLC0415

    folder = Path(found.origin).parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    table = next(iter(load_file(str(folder / "weights" / "l2_supercat_256.safetensors")).values())).astype(np.float32)
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    vectors = np.stack([table[one.ids].mean(axis=0) if one.ids else np.zeros(table.shape[1]) for one in encoded])
    unit: NDArray[np.float32] = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(
        np.float32
    )
    return unit


def _ranks(values: Floats) -> Floats:
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def run_tasks(folder: Path, *, shuffles: bool) -> None:
    """The task head trained on all sources but one, for each; restricted rows are never trained on."""
    rows = read_tasks(folder)
    extra = read_tasks(folder, name="intent_restricted.jsonl.gz")
    if shuffles:
        labels = np.random.default_rng(1).permutation([bool(row.is_full) for row in rows])
        rows = [
            Row(row.text, row.source, row.group, is_full=bool(full)) for row, full in zip(rows, labels, strict=True)
        ]
    texts, others = recipe.read_features(rows, 0), recipe.read_features(extra, 0)
    scale = recipe.scale_of(texts, recipe.TASK_PAIRED)
    problem = recipe.task_problem(texts, scale.expand(texts.dense))
    held = {
        "task head, source left out": problem.predict_held_out(texts.sources),
        "task head, data set left out": problem.predict_held_out(texts.groups),
    }
    unseen = scale.expand(others.dense) @ problem.fit()
    everything = [*rows, *extra]
    is_full = np.array([bool(row.is_full) for row in everything])
    languages = {row["text"]: row["lang"] for row in _lines(folder)}
    is_zh = np.array([languages[row.text] == "zh" for row in everything])
    said = {name: np.r_[values, unseen] >= 0 for name, values in held.items()}
    said["rules (none speaks: full)"] = np.array([rule_score(row.text) >= 0.5 for row in everything])
    said["rules (none speaks: lite)"] = np.array([rule_score(row.text) > 0.5 for row in everything])
    said["length >= 60"] = np.array([len(row.text) >= 60 for row in everything])
    say(f"\nTier by task type, balanced accuracy: {len(rows)} rows left out in turn, {len(extra)} never seen")
    say("| score | en | zh |")
    say("|---|---|---|")
    for name, full in said.items():
        cells = [_balance(is_full[is_zh == zh], full[is_zh == zh]) for zh in (False, True)]
        say(f"| {name} | {cells[0]} | {cells[1]} |")
    full = said["task head, source left out"]
    say("\nRecall by data set, source left out (80 rows or more):")
    for name in sorted({row.group for row in everything}):
        for tier in (True, False):
            at = np.array([row.group == name and row.is_full == tier for row in everything])
            if at.sum() >= 80:
                say(f"  {name}, {'full' if tier else 'lite'}: {(full[at] == tier).mean():.2f} of {at.sum()}")


def _balance(is_full: NDArray[np.bool_], full: NDArray[np.bool_]) -> str:
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(500):
        at = generator.integers(0, len(full), len(full))
        drawn.append(measure_balance(is_full[at], full[at]))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{measure_balance(is_full, full):.3f} [{low:.3f}, {high:.3f}]"


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for name in ("intent_open", "intent_restricted"):
        yield from (row for _, row in read_lines(folder / f"{name}.jsonl.gz"))


def run_speed(folder: Path, *, shuffles: bool) -> None:
    """One text in, one score out, one thread; processor time tells what other tenants of the machine do not."""
    del shuffles
    classifier = load_classifier()
    scored_by = f"ONNX Runtime, {classifier.slow_because}" if classifier.slow_because else "the compiled evaluator"
    say(
        f"\n{classifier.version}, {SHIPPED.stat().st_size} bytes, by {scored_by}; "
        f"features compiled: {classifier.is_compiled}"
    )
    lines = list(_lines(folder))
    english = [row["text"] for row in lines if row["lang"] == "en"]
    chinese = [row["text"] for row in lines if row["lang"] == "zh"]
    sets = {
        "en, up to 200 characters": [text for text in english if len(text) <= 200],
        "en, 800 to 2,000": [text for text in english if 800 <= len(text) <= 2000],
        "en, over 2,000": [text for text in english if len(text) > 2000],
        "zh, up to 60": [text for text in chinese if len(text) <= 60],
        "zh, 150 to 400": [text for text in chinese if 150 <= len(text) <= 400],
    }
    say("| texts | n | wall p50 / p99, us | calls not interrupted: share, p99, us | best of 10 of each text, p99, us |")
    say("|---|---|---|---|---|")
    for name, texts in sets.items():
        found = time_texts(classifier.score, texts[:300], 10)
        wall = f"{found.wall[0]:.1f} / {found.wall[1]:.1f} | {found.kept:.2f}, {found.undisturbed[1]:.1f}"
        say(f"| {name} | {len(texts[:300])} | {wall} | {found.best:.1f} |")
    say("\nBy ONNX Runtime, so many texts in one run, a text's share of the processor time (p50, us):")
    texts = sets["en, up to 200 characters"][:256]
    for size in (1, 2, 4, 8, 16, 64, 256):
        groups = [texts[at : at + size] for at in range(0, len(texts), size)]
        found = time_texts(lambda group: classifier.run_graph(classifier.prepare(group)), groups, 20)
        say(f"  {size:4d} in one run: {found.processor[0] / size:.1f}")
    say(f"  as the router scores one: {time_texts(classifier.score, texts, 20).processor[0]:.1f}")


@dataclass(frozen=True, slots=True)
class Times:
    """p50 and p99 in microseconds: on the wall, in calls that the kernel did not interrupt (`kept` is their share), of
    the processor; `best` is the p99 over the inputs of each one's best."""

    wall: Floats
    undisturbed: Floats
    kept: float
    processor: Floats
    best: float


def time_texts(score: Callable[[Any], Any], inputs: Sequence[Any], rounds: int) -> Times:
    """Time each input in turn, several times over."""
    wall, processor = np.zeros((rounds, len(inputs))), np.zeros((rounds, len(inputs)))
    switches = np.zeros((rounds, len(inputs)), np.int64)
    for turn in range(rounds):
        for at, one in enumerate(inputs):
            before = _switches()
            start, begun = time.perf_counter_ns(), time.thread_time_ns()
            score(one)
            processor[turn, at] = (time.thread_time_ns() - begun) / 1000
            wall[turn, at] = (time.perf_counter_ns() - start) / 1000
            switches[turn, at] = _switches() - before
    calm = wall[switches == 0]
    percentiles = [np.percentile(values, [50, 99]) for values in (wall, calm, processor)]
    best = float(np.percentile(wall.min(axis=0), 99))
    return Times(percentiles[0], percentiles[1], calm.size / wall.size, percentiles[2], best)


def _switches() -> int:
    """How often this thread was taken off its processor."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


PARTS: Final = {"speed": run_speed, "fixed": run_fixed, "gold": run_gold, "tasks": run_tasks, "chinese": run_chinese}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts of the evaluation; none: all")
    parser.add_argument("--rehearse", action="store_true", help="with shuffled labels")
    options = parser.parse_args()
    suites = os.environ.get("SSOP_SUITES")
    if not suites:
        say("not run: SSOP_SUITES does not name the folder of the test suites")
        return 0
    for name in options.parts or PARTS:
        PARTS[name](Path(suites) / "routing", shuffles=options.rehearse)
    return 0


if __name__ == "__main__":
    sys.exit(main())
