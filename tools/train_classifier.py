"""Train the shipped classifier from openly licensed rows: tools/train_classifier.py ROUTING_DIR [--out FILE].

ROUTING_DIR holds train_gt_open.jsonl.gz and intent_open.jsonl.gz. Rows whose scores come through a table without a
licence are left out. There is nothing random in it: the same rows and libraries give the same bytes. It prints what
was chosen, and by what criterion; docs/models/classifier.md tells the rest.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ssop_router.classification.training.recipe import Trained, train
from ssop_router.classification.training.rows import Row, read_lines
from ssop_router.classifier import SHIPPED

GAIN_SOURCES: Final = ("llmrouter-", "mmlupro-", "zeroeval-")
UNLICENSED: Final = "RouterDC"
# Sources that hold texts of the same data set are left out together.
DATA_SETS: Final = {
    "llmrouter-gsm8k": "gsm8k", "gsm8k": "gsm8k", "llmrouter-math": "math", "zeroeval-math-l5": "math", "math": "math",
}  # fmt: skip
# Task types that the labels call lite, though the only source of theirs with scores gains as much as mathematics does.
# Their label stays for the task head; the need head, which the score listens to, learns them as full.
CONTRADICTED: Final = frozenset({"codegen"})
SHARES: Final = (0.5, 0.125, 0.375, 0.0)
"""Of length, gain, need and n-grams in the blend: chosen by the criterion for the second model, kept since."""
TEMPLATES: Final = (
    "adversarial_qa", "ag_news", "amazon_polarity", "app_reviews", "cnn_dailymail", "common_gen", "dbpedia_14", "duorc",
    "gigaword", "glue_mrpc", "glue_qqp", "imdb", "kilt_tasks_hotpotqa", "multi_news", "paws", "qasc", "quarel",
    "quoref", "ropes", "rotten_tomatoes", "samsum", "sciq", "trec", "wiki_bio", "wiki_hop", "wiki_qa", "wiqa", "xsum",
    "yelp",
)  # fmt: skip


def data_set(group: str) -> str:
    """The data set of a source's group; all templates over one set of texts are one."""
    if group.startswith("t0-"):
        name = next(name for name in TEMPLATES if group[3:].startswith(name))
        return "hotpotqa" if name.endswith("hotpotqa") else f"t0-{name}"
    return DATA_SETS.get(group, group)


def read_gains(folder: Path) -> list[Row]:
    """Rows with qualities of a weak and a strong model, from sources with a licence."""
    found = []
    for line in _open_rows(folder / "train_gt_open.jsonl.gz"):
        if line["source"].startswith(GAIN_SOURCES) and None not in (line["weak"], line["strong"]):
            group = data_set(line["group"])
            found.append(Row(line["prompt"], line["source"], group, float(line["weak"]), float(line["strong"])))
    return found


def read_tasks(folder: Path, *, name: str = "intent_open.jsonl.gz") -> list[Row]:
    """Rows with the tier of their task type; the source is the label's own group, the group its data set."""
    lines = (
        _open_rows(folder / name) if name == "intent_open.jsonl.gz" else (row for _, row in read_lines(folder / name))
    )
    return [
        Row(
            line["text"],
            line["group"],
            data_set(line["group"]),
            is_full=line["label"] == "full",
            is_gainful=True if line["intent"] in CONTRADICTED else None,
        )
        for line in lines
    ]


def _open_rows(path: Path) -> Iterator[dict[str, Any]]:
    for _, line in read_lines(path):
        if not line["restricted"] and UNLICENSED not in line["licence"]:
            yield line


def train_shipped(folder: Path, *, tries_grams: bool = False) -> Trained:
    """The shipped classifier. n-grams cost minutes to try, and no blend with them comes near the best ones."""
    gains, tasks = read_gains(folder), read_tasks(folder)
    sources = sorted({row.source for row in gains} | {row.group for row in tasks})
    return train(
        gains,
        tasks,
        tries_grams=tries_grams,
        is_chinese_seen=False,
        shares=SHARES,
        notes={"licence": "Apache-2.0", "sources": ", ".join(sources), "rows": f"{len(gains)} and {len(tasks)}"},
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--grams", action="store_true", help="try n-grams too")
    options = parser.parse_args()
    trained = train_shipped(options.folder, tries_grams=options.grams)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(trained.artefact)
    shown = [*trained.candidates[:10], trained.length]
    for candidate in shown:
        sys.stdout.write(
            f"penalty {candidate.penalty:7.0f}  length/gain/need/grams {candidate.blend}  "
            f"between {candidate.between:.4f}  "
            f"within {candidate.within:.4f}  tier {candidate.tier or 0:.4f}  criterion {candidate.criterion:.4f}\n"
        )
    report = {"version": trained.version, "bytes": len(trained.artefact), "tried": len(trained.candidates)}
    sys.stdout.write(json.dumps(report | {"penalty": trained.penalty, "blend": trained.blend}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
