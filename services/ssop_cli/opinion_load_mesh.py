"""The mesh that a load is put on: all of it real but the model, which is replayed."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

from rich.console import Console

from ssop_chassis.transport import is_native_built
from ssop_cli import embedded
from ssop_cli.detached import run_down
from ssop_cli.failure import CommandError
from ssop_cli.opinion_mesh import make_tenant, opinion_section
from ssop_cli.places import Places, make_places

MODEL: Final = "replay"
COLLECTION: Final = "brands"
BRANDS: Final = (
    ("Norvane", "parcels"), ("Bellora", "kettles"), ("Tirquist", "hotel rooms"), ("Osmadel", "mobile phones"),
    ("Kavrello", "coffee"), ("Pintaro", "train tickets"), ("Wexmoor", "garden tools"), ("Halvidia", "insurance"),
    ("Zuntara", "running shoes"), ("Crelmont", "cheese"), ("Dovariq", "car tyres"), ("Eltenby", "children's books"),
    ("Fasquor", "bank accounts"), ("Grunwick", "washing machines"), ("Ivessa", "skin cream"), ("Jorvolt", "batteries"),
    ("Lumarche", "lamps"), ("Mesquilo", "video games"), ("Quentira", "pet food"), ("Rostavel", "mattresses"),
    ("Sylvarn", "bicycles"), ("Ulmeric", "concert tickets"), ("Yarrowen", "tea"),
)  # fmt: skip
"""What posts are about, and what each of them sells."""
_TOKENS: Final = 40
_FIRST_SHARE: Final = 0.25
"""Share of a stream's time before its first token, as prompts take it."""
_OPINIONS: Final = (
    ("negative", -4, 4, "complaint", "escalate"),
    ("negative", -2, 2, "failure", "reply"),
    ("neutral", 0, 1, "news", "ignore"),
    ("positive", 3, 1, "praise", "watch"),
)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Load: `rate` posts a second for `duration_s`, then `burst_rate` for `burst_s`. `p50_ms`, `p99_ms`: the model's.

    `repost_share` of the posts say what an earlier one said. The tenant knows `known_share` of the brands by name, and,
    with retrieval, has a document of each. `batch` is the most posts of one request. With `is_grave`
    every answer is one that people must hear of, each about an entity of its own. `tenant` and `opinion` add to the
    tenant's file and to the section of the settings.
    """

    rate: float = 200.0
    duration_s: float = 60.0
    burst_rate: float = 0.0
    burst_s: float = 0.0
    p50_ms: float = 600.0
    p99_ms: float = 1_200.0
    repost_share: float = 0.2
    known_share: float = 0.8
    batch: int = 100
    seed: int = 1
    drain_timeout_s: float = 300.0
    retrieval: float | None = None
    is_grave: bool = False
    tenant: Mapping[str, Any] = field(default_factory=dict)
    opinion: Mapping[str, Any] = field(default_factory=dict)


def write_recording(path: Path, options: LoadOptions, streams: int = 200) -> None:
    """A recording for the `replay` model: answers by the schema of posts, with the times that are asked for."""
    rng = random.Random(options.seed)  # noqa: S311 - a load, not a secret
    sigma = math.log(options.p99_ms / options.p50_ms) / NormalDist().inv_cdf(0.99)
    with path.open("w", encoding="utf-8") as file:
        for number in range(streams):
            total_ms = options.p50_ms * math.exp(sigma * rng.gauss(0, 1))
            text = json.dumps(_answer(number, options), ensure_ascii=False, separators=(",", ":"))
            size = -(-len(text) // _TOKENS)
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            first_ms = total_ms * _FIRST_SHARE
            rest_ms = (total_ms - first_ms) / max(1, len(pieces) - 1)
            waits = [first_ms, *[rest_ms] * (len(pieces) - 1)]
            tokens = [[round(wait_ms, 3), piece] for wait_ms, piece in zip(waits, pieces, strict=True)]
            file.write(json.dumps({"tokens": tokens, "stop": "end", "input_tokens": 300}, ensure_ascii=False) + "\n")


def _answer(number: int, options: LoadOptions) -> dict[str, Any]:
    label, score, severity, event, action = _OPINIONS[0 if options.is_grave else number % len(_OPINIONS)]
    entity = f"Brand {number}" if options.is_grave else BRANDS[number % len(BRANDS)][0]
    return {
        "main_entity": entity, "entity_type": "company", "event_type": event,
        "sentiment_score": score, "sentiment_label": label, "severity": severity, "confidence": 0.8,
        "summary": "a customer says how it went", "evidence": "as it says", "language": "en",
        "audience": "customers", "suggested_action": action,
    }  # fmt: skip


def load_document(places: Places, options: LoadOptions) -> dict[str, Any]:
    """The settings of the mesh of a run."""
    recording = places.state / "recording.jsonl"
    write_recording(recording, options)
    port, metrics = embedded.free_port(), embedded.free_port()
    document = embedded.default_settings(places, port=port, models_dir=places.state, model=MODEL)
    document["inference"]["models"] = [{
        "name": MODEL, "backend": "replay", "path": str(recording), "tiers": ["lite", "full"], "slots": 1_024,
    }]  # fmt: skip
    document["router"]["max_in_flight"] = 1_024
    if is_native_built():
        # A load is about what the mesh can do; `SSOP_MESH_TRANSPORT` still has the last word.
        document["mesh"]["transport"] = "native"
    if options.retrieval is None:
        del document["rag"], document["router"]["rag_address"]
    else:
        document["router"]["rag_prefetch_ratio"] = options.retrieval
        document["mesh"]["metrics_listen"] = {"rag": f"127.0.0.1:{metrics}"}
    values = {"max_analyses": 400, **options.opinion}
    document["opinion"] = opinion_section(
        places, router=f"127.0.0.1:{port}", listen=f"127.0.0.1:{embedded.free_port()}", **values
    )
    return document


@contextmanager
def load_mesh(places: Places, options: LoadOptions, console: Console) -> Iterator[str]:
    """The mesh of a run, until the block ends; the URL of its opinion service. Raises CommandError."""
    make_places(places)
    embedded.make_identity(places)
    known = BRANDS[: round(len(BRANDS) * options.known_share)]
    tenant: dict[str, Any] = {"brands": [{"name": name, "note": sells} for name, sells in known], **options.tenant}
    if options.retrieval is not None:
        tenant |= {"collections": [COLLECTION], "rag_prefetch_ratio": options.retrieval}
    make_tenant(places, tenant)
    document = load_document(places, options)
    config = places.state / "load.toml"
    config.write_text(embedded.dump_toml(document), encoding="utf-8")
    # A process of its own: this one may go on for long, and would be the parent of a mesh that it never waits for.
    _ssop(console, "up", "--detach", "--state-dir", str(places.state), "--config", str(config))
    try:
        if options.retrieval is not None:
            _index_brands(places, console)
        yield f"http://{document['opinion']['listen'][0]}"
    finally:
        run_down(places, lambda _: None)


def _index_brands(places: Places, console: Console) -> None:
    """What is known of the tenant's brands, for posts that name none of them by its name."""
    path = places.state / "brands.jsonl"
    lines = [
        json.dumps({"id": name.lower(), "text": f"{name} sells {sells}. In May its customers had to wait."})
        for name, sells in BRANDS
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    _ssop(console, "index", "add", str(path), "--collection", COLLECTION, "--state-dir", str(places.state))


def _ssop(console: Console, *arguments: str) -> None:
    done = subprocess.run(  # noqa: S603 - this program itself
        [sys.executable, "-m", "ssop_cli.main", *arguments], capture_output=True, text=True, check=False
    )
    console.print(done.stdout.strip(), highlight=False, markup=False, soft_wrap=True)
    if done.returncode:
        raise CommandError(f"ssop {arguments[0]} failed: {done.stderr.strip()}")
