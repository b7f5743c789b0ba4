"""Every fortieth schema of MaskBench; `tests/bench/bench_maskbench.py` runs them all."""

import json
import lzma
from typing import Any

import pytest

from helpers.codec_cases import encode, run
from helpers.components import suites_dir
from ssop_codec import Encoder, SchemaError, Verdict, compile_schema

pytestmark = pytest.mark.needs("suites")

EVERY = 40


def records() -> list[dict[str, Any]]:
    folder = suites_dir()
    if folder is None:
        return []
    lines: list[str] = []
    for path in sorted((folder / "suites" / "maskbench").glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            lines += file
    return [json.loads(line) for line in lines[::EVERY]]


def test_no_instance_is_judged_wrong() -> None:
    wrong = []
    for record in records():
        try:
            schema = compile_schema(record["schema"])
        except SchemaError:
            continue
        for position, test in enumerate(record["tests"]):
            data = json.dumps(test["data"], ensure_ascii=False).encode()
            whole = encode(schema, data)
            pieces = run(Encoder, schema, [data[at : at + 4] for at in range(0, len(data), 4)])
            if (whole[1] == Verdict.OK) != test["valid"] or whole[1:] != pieces[1:]:
                wrong.append((record["id"], position, whole[2]))
    assert not wrong


def test_nearly_every_schema_compiles() -> None:
    refused = []
    known = records()
    for record in known:
        try:
            compile_schema(record["schema"])
        except SchemaError as error:
            refused.append((record["id"], error.keyword))
    assert len(refused) <= len(known) * 0.005, refused
