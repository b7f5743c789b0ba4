"""A trained classifier as the bytes that routers read, with the texts by which a reader notices what is not its own."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ssop_chassis.onnx_runtime import import_onnxruntime
from ssop_router.classification.extraction import make_extractor, specify_features
from ssop_router.classification.lexicon import CATEGORIES, word_categories
from ssop_router.classification.training.graph import Parameters, build_graph

HEAD_CHARS: Final = 1400
TAIL_CHARS: Final = 600
PROBE: Final = (
    "What is the capital of France?",
    "Translate to German: good morning",
    "A train leaves at 9:40 and travels 210 km at 84 km/h. After 15 minutes it returns at 70 km/h. When is it back?",
    "Prove that the square root of 2 is irrational, and explain where the argument fails for the square root of 4.",
    "Write a function that merges overlapping intervals, and give its complexity.",
    "请把下面的句子翻译成英文：今天天气很好。",
    "甲、乙两地相距360千米，一辆汽车前2小时行了120千米，照这样计算，还要几小时才能到达？",
    "因为合同没有写明交货日期，所以买方拒绝付款。请结合案情分析双方的责任，并说明理由。",
)
"""Texts whose scores an artefact holds, so that a reader notices features or a runtime that are not its own."""


def specify(bits: int) -> dict[str, Any]:
    """The features that this program trains on."""
    return specify_features(word_categories(), list(CATEGORIES), bits, HEAD_CHARS, TAIL_CHARS)


def write_artefact(parameters: Parameters, bits: int, notes: Mapping[str, str]) -> tuple[bytes, str]:
    """The artefact, whose version is a digest of its weights, and that version."""
    bare = build_graph(parameters, {})
    version = f"complexity-1-{hashlib.sha256(bare).hexdigest()[:8]}"
    metadata = {f"ssop.{name}": text for name, text in notes.items()} | {
        "ssop.kind": "ssop-complexity",
        "ssop.format": "1",
        "ssop.version": version,
        "ssop.features": json.dumps(specify(bits), ensure_ascii=False, sort_keys=True, separators=(",", ":")),
    }
    scores = score_with(bare, bits, PROBE)
    metadata["ssop.probe"] = json.dumps(
        [[text, round(score, 6)] for text, score in zip(PROBE, scores, strict=True)], ensure_ascii=False
    )
    return build_graph(parameters, metadata), version


def score_with(artefact: bytes, bits: int, texts: Sequence[str]) -> list[float]:
    """What a graph makes of texts, one by one."""
    onnxruntime = import_onnxruntime()

    session = onnxruntime.InferenceSession(artefact, providers=["CPUExecutionProvider"])
    extractor = make_extractor(specify(bits))
    found = []
    for text in texts:
        ids, weights, dense = extractor.extract(text)
        feed = {"dense": dense[None]} | ({"ids": ids[None], "weights": weights[None]} if bits else {})
        found.append(float(session.run(["score"], feed)[0][0]))
    return found
