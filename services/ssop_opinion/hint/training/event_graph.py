"""Puts the part that says event types into the artefact of the hint, in the place of the one that is there."""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ssop_opinion.core.prompt import EVENTS
from ssop_opinion.core.wording import even_out
from ssop_opinion.hint.model import HintModel, open_hint
from ssop_opinion.hint.training.events import EventPart, choose, written_posts

CHOSEN: Final = (3e-5, 3e-6)
"""Penalties that the criterion chose, English and Chinese."""
PROBES: Final = (
    "Love it, best phone I ever had!",
    "The app is down again, error 503",
    "We launch our new app on Friday",
    "不好吃，送来都凉了，客服不理人",
    "公司涉嫌诈骗，警方已经立案",
    "请问周日几点开门",
)
_PREFIX: Final = "event"
_KEY: Final = "ssop.events"
Part = Mapping[str, NDArray[Any]]


def teach_events(base: bytes, *, is_choosing: bool = False) -> tuple[bytes, str]:
    """The artefact with a part fitted on the written rows, and that part's version."""
    with tempfile.TemporaryDirectory() as folder:
        model = _open(without_events(base), Path(folder))
        rows = written_posts()
        penalties, parts = list(CHOSEN), []
        for at, language in enumerate(("en", "zh")):
            part = EventPart(rows, language, model)  # type: ignore[arg-type]
            if is_choosing:
                penalties[at] = choose(part)
            parts.append(part.make(penalties[at]))
        print("penalties", penalties, flush=True)
        digest = hashlib.sha256(b"".join(part[name].tobytes() for part in parts for name in sorted(part))).hexdigest()
        version = f"events-1-{digest[:8]}"
        draft = _open(add_events(base, *parts, version=version, probe=[("", EVENTS[0], 0.0)]), Path(folder))
        return add_events(base, *parts, version=version, probe=_probe(draft)), version


def add_events(
    base: bytes, english: Part, chinese: Part, *, version: str, probe: Sequence[tuple[str, str, float]]
) -> bytes:
    """The artefact's bytes. Buckets that no row has share the first row of the table, which is nothing."""
    model = onnx.load_from_string(without_events(base))
    graph = model.graph
    buckets = next(tensor.dims[0] for tensor in graph.initializer if tensor.name == "table")
    places = np.zeros(buckets, np.uint16)
    kept = np.concatenate([english["kept"], chinese["kept"]])
    if len(kept) > np.iinfo(np.uint16).max:
        raise ValueError(f"{len(kept)} buckets are too many")
    places[kept] = np.arange(1, len(kept) + 1)
    rows = np.concatenate([english["table"], chinese["table"]])
    weights = {
        "event_places": places,
        "event_table": np.vstack([np.zeros((1, rows.shape[1])), rows]).astype(np.float16),
        "event_dense_en": english["dense"].astype(np.float32),
        "event_dense_zh": chinese["dense"].astype(np.float32),
        "event_bias_en": english["bias"].astype(np.float32),
        "event_bias_zh": chinese["bias"].astype(np.float32),
        "event_count": np.array([len(EVENTS)], np.int64),
        "event_end": np.array([len(EVENTS) + 1], np.int64),
    }
    graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in weights.items()
    )
    node = helper.make_node
    # `first`, `floor` and `is_english` are the sentiment's, as are the four dense features that come after its own.
    graph.node.extend(
        [
            node("Gather", ["event_places", "ids"], ["event_at16"], axis=0),
            node("Cast", ["event_at16"], ["event_at"], to=TensorProto.INT32),
            node("Gather", ["event_table", "event_at"], ["event_rows16"], axis=0),
            node("Cast", ["event_rows16"], ["event_rows"], to=TensorProto.FLOAT),
            node("ReduceSum", ["event_rows", "first"], ["event_sums"], keepdims=0),
            node("Slice", ["event_sums", "first", "event_count"], ["event_raw"]),
            node("Slice", ["event_sums", "event_count", "event_end"], ["event_square"]),
            node("Max", ["event_square", "floor"], ["event_square_up"]),
            node("Sqrt", ["event_square_up"], ["event_norm"]),
            node("Div", ["event_raw", "event_norm"], ["event_grams"]),
            node("Concat", ["dense", "probabilities", "valence"], ["event_dense"], axis=0),
            node("MatMul", ["event_dense", "event_dense_en"], ["event_mul_en"]),
            node("Add", ["event_mul_en", "event_bias_en"], ["event_add_en"]),
            node("Mul", ["event_add_en", "is_english"], ["event_own_en"]),
            node("MatMul", ["event_dense", "event_dense_zh"], ["event_mul_zh"]),
            node("Add", ["event_mul_zh", "event_bias_zh"], ["event_add_zh"]),
            node("Mul", ["event_add_zh", "is_chinese"], ["event_own_zh"]),
            node("Add", ["event_own_en", "event_own_zh"], ["event_own"]),
            node("Add", ["event_grams", "event_own"], ["event_all"]),
            node("Softmax", ["event_all"], ["events"], axis=0),
        ]
    )
    graph.output.append(helper.make_tensor_value_info("events", TensorProto.FLOAT, [len(EVENTS)]))
    notes = {"version": version, "labels": EVENTS, "probe": list(probe), "rows": "written for SSOP Mesh, Apache-2.0"}
    said = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(model, {**said, _KEY: json.dumps(notes, ensure_ascii=False)})
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def without_events(base: bytes) -> bytes:
    """The artefact's bytes without such a part."""
    model = onnx.load_from_string(base)
    graph = model.graph
    _keep(graph.node, [one for one in graph.node if not one.output[0].startswith(_PREFIX)])
    for field in (graph.initializer, graph.output):
        _keep(field, [one for one in field if not one.name.startswith(_PREFIX)])
    _keep(model.metadata_props, [one for one in model.metadata_props if one.key != _KEY])
    return model.SerializeToString(deterministic=True)


def _keep(field: Any, kept: Sequence[Any]) -> None:
    del field[:]
    field.extend(kept)


def _open(content: bytes, folder: Path) -> HintModel:
    path = folder / "draft.onnx"
    path.write_bytes(content)
    return open_hint(path, is_checked=False)


def _probe(model: HintModel) -> list[tuple[str, str, float]]:
    """What the artefact says of texts of our own: a reader checks it."""
    found = [(text, model.judge(even_out(text))) for text in PROBES]
    return [
        (text, EVENTS[hint.events.index(max(hint.events))], max(hint.events))
        for text, hint in found
        if hint is not None
    ]
