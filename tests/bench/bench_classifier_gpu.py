"""The classifier on a GPU: scores equal to the CPU's, and what a text costs. Needs Python, numpy and onnxruntime-gpu.

Run from the root of a source tree, with nothing built or installed: the slow twin then reads the features, once, and
the graph alone is timed. Exits 1 where scores differ by more than 1e-5, 77 where CUDA does not run here.
"""

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "router_svc"))

import numpy as np  # noqa: E402 - the tree comes first
import onnxruntime  # noqa: E402

from ssop_router.classification.extraction import IS_COMPILED  # noqa: E402
from ssop_router.classification.model import OnnxComplexityModel  # noqa: E402
from ssop_router.classifier import SHIPPED, load_classifier  # noqa: E402

TOLERANCE: Final = 1e-5
BATCHES: Final = (1, 32, 1024)
RUNS: Final = {1: 2000, 32: 1000, 1024: 200}
SAMPLES: Final = ROOT / "tests" / "vectors" / "routing_samples.json"


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def read_texts() -> list[str]:
    """The shipped sample texts."""
    samples = json.loads(SAMPLES.read_text(encoding="utf-8"))
    return [*samples["en"], *samples["zh"], *samples["odd"]]


def compare(cpu: OnnxComplexityModel, cuda: OnnxComplexityModel, texts: list[str]) -> float:
    """Largest difference between two providers, batched and one by one; scores of None must agree."""
    largest = 0.0
    for one, other in zip(cpu.score_batch(texts), cuda.score_batch(texts), strict=True):
        if (one.score is None) != (other.score is None) or one.abstention != other.abstention:
            return float("inf")
        if one.score is not None and other.score is not None:
            largest = max(largest, abs(one.score - other.score), abs(one.spread - other.spread))
    for text, batched in zip(texts, cpu.score_batch(texts), strict=True):
        alone = cuda.score(text)
        if alone.score is not None and batched.score is not None:
            largest = max(largest, abs(alone.score - batched.score))
    return largest


def time_graph(model: OnnxComplexityModel, texts: list[str], size: int) -> tuple[float, float]:
    """p50 and p99 of one run of the graph for `size` texts, in microseconds; features are read before."""
    feed: dict[str, Any] = model.prepare([texts[at % len(texts)] for at in range(size)])
    for _ in range(20):
        model.run_graph(feed)
    taken = []
    for _ in range(RUNS[size]):
        start = time.perf_counter_ns()
        model.run_graph(feed)
        taken.append((time.perf_counter_ns() - start) / 1000)
    p50, p99 = np.percentile(taken, [50, 99])
    return float(p50), float(p99)


def main() -> int:
    """Entry point."""
    texts = read_texts()
    say(f"python {platform.python_version()}  numpy {np.__version__}  onnxruntime {onnxruntime.__version__}")
    say(f"providers: {', '.join(onnxruntime.get_available_providers())}; compiled features: {IS_COMPILED}")
    cpu = load_classifier(SHIPPED)
    cuda = load_classifier(SHIPPED, providers=("cuda", "cpu"))
    say(f"artefact: {cpu.version}, {SHIPPED.stat().st_size} bytes; asked for CUDA, got {cuda.provider}")
    models = {"cpu": cpu}
    if cuda.provider.name == "cuda":
        models["cuda"] = cuda
        largest = compare(cpu, cuda, texts)
        say(f"largest difference between CPU and CUDA over {len(texts)} texts: {largest:.2e} (allowed {TOLERANCE:.0e})")
    say("| provider | texts in one run | p50, us | p99, us | p50 a text, us |")
    say("|---|---|---|---|---|")
    for name, model in models.items():
        for size in BATCHES:
            p50, p99 = time_graph(model, texts, size)
            say(f"| {name} | {size} | {p50:.1f} | {p99:.1f} | {p50 / size:.2f} |")
    if "cuda" not in models:
        say("CUDA does not run here: nothing was compared")
        return 77
    return 0 if largest <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
