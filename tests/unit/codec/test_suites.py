"""The suites that are not shipped: boundary cases from public bug reports, and JSONTestSuite."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.codec_cases import decode, encode, run
from helpers.components import suites_dir
from ssop_codec import Encoder, FrameKind, Verdict, compile_schema
from ssop_codec.formats import FORMATS, SHAPES
from ssop_codec.pattern import compile_pattern

pytestmark = pytest.mark.needs("suites")


def cases() -> list[dict[str, Any]]:
    folder = suites_dir()
    if folder is None:
        return []
    path = folder / "suites" / "stream_cases" / "cases.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def documents(prefix: str) -> list[Path]:
    folder = suites_dir()
    if folder is None:
        return []
    found = sorted((folder / "suites" / "jsontestsuite" / "test_parsing").glob(f"{prefix}_*.json"))
    assert found
    return found


def leaves(chunks: list[bytes]) -> list[list[Any]]:
    """Complete scalars and empty containers in their order."""
    decoder, frames = decode(chunks)
    found: list[list[Any]] = []
    pieces: list[str] = []
    for frame in frames:
        if frame.kind == FrameKind.PART:
            pieces.append(str(frame.value))
        elif frame.kind == FrameKind.VALUE:
            value = "".join((*pieces, str(frame.value))) if frame.parts else frame.value
            pieces.clear()
            found.append([frame.path, value])
        elif frame.kind == FrameKind.CLOSE and frame.size == 0:
            at = decoder.result
            for token in frame.tokens:
                at = at[token]
            found.append([frame.path, at])
    return found


SOONER = {"num-max-early": 7, "obj-addl-false": 15, "obj-pattern-props": 12, "str-format-date": 15}
"""Cases whose error is found before the place that the suite gives, at the first byte after which no document exists:
no integer up to 10 begins with 11, no other name with n, no name that matches with y, no day of February with 3."""


# The longest has 26,000 cuts, each a whole document.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["id"]))
def test_boundary_case_at_every_cut(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"]) if "hex" in case else case["input"].encode()
    schema = compile_schema(case["schema"])
    options: dict[str, Any] = {"envelope": "preamble" in case.get("opts", {})}
    whole = encode(schema, data, **options)
    chunks, verdict, violation, _ = whole
    names = {Verdict.OK: "ok", Verdict.INVALID: "error", Verdict.INCOMPLETE: "incomplete"}
    assert names[Verdict(verdict)] in case["end"].split("_") or case["end"] == "error_or_raw"
    if case.get("err_at") is not None:
        assert violation is not None
        assert violation.offset_bytes == SOONER.get(case["id"], case["err_at"])
    expected = case["frames"]
    if case["end"] == "error_or_raw":
        # This codec sends the text of the number.
        assert verdict == Verdict.OK
    else:
        assert leaves(chunks) == expected
    for cut in range(len(data) + 1):
        assert run(Encoder, schema, [data[:cut], data[cut:]], **options) == whole
    assert run(Encoder, schema, [data[i : i + 1] for i in range(len(data))], **options) == whole


@pytest.mark.parametrize("size", [1, 3, 0])
@pytest.mark.parametrize("path", documents("y"), ids=lambda path: str(path.stem))
def test_valid_json_is_taken(path: Path, size: int) -> None:
    data = path.read_bytes()
    pieces = [data[i : i + size] for i in range(0, len(data), size)] if size else [data]
    chunks, verdict, _, _ = run(Encoder, None, pieces)
    assert verdict == Verdict.OK
    assert decode(chunks)[0].result == json.loads(data)


@pytest.mark.parametrize("size", [1, 3, 0])
@pytest.mark.parametrize("path", documents("n"), ids=lambda path: str(path.stem))
def test_invalid_json_is_not_taken(path: Path, size: int) -> None:
    data = path.read_bytes()
    pieces = [data[i : i + size] for i in range(0, len(data), size)] if size else [data]
    assert run(Encoder, None, pieces)[1] != Verdict.OK


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_format_agrees_with_the_suite(name: str) -> None:
    folder = suites_dir()
    assert folder is not None
    tests = folder / "suites" / "json-schema-test-suite" / "tests" / "draft2020-12" / "optional" / "format"
    checked = 0
    for group in json.loads((tests / f"{name}.json").read_text()):
        for case in group["tests"]:
            text = case["data"]
            # What a label encodes (IDNA) is not judged.
            if isinstance(text, str) and "xn--" not in text.lower():
                assert FORMATS[name](text) == case["valid"], text
                # What tells early must never tell of a text that keeps the format.
                assert not case["valid"] or name not in SHAPES or compile_pattern(SHAPES[name]).search(text), text
                checked += 1
    assert checked > 1
