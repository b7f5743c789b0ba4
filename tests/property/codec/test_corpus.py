"""What the fuzzer starts from: one schema and more for every keyword, with documents that fit it."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.codec_cases import encode, encode_slowly, run
from ssop_codec import Encoder, Verdict, compile_schema
from ssop_codec.keywords import KNOWN

CORPUS = json.loads((Path(__file__).parents[2] / "fuzz" / "corpus.json").read_text())["entries"]
CASES = [(entry["schema"], document) for entry in CORPUS for document in entry["documents"]]


def keywords(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema).union(*map(keywords, schema.values()))
    return set().union(*map(keywords, schema)) if isinstance(schema, list) else set()


def test_every_keyword_has_an_entry() -> None:
    assert KNOWN - keywords([entry["schema"] for entry in CORPUS]) == set()


@pytest.mark.parametrize(("schema", "document"), CASES)
def test_document_is_good_and_no_cut_changes_what_the_twin_makes(schema: Any, document: str) -> None:
    compiled, data = compile_schema(schema), document.encode()
    whole = encode_slowly(compiled, data)
    assert whole[1] == Verdict.OK, whole[2]
    for at in range(1, len(data) + 1):
        assert run(Encoder, compiled, [data[:at], data[at:]]) == whole


@pytest.mark.parametrize(("schema", "document"), CASES)
def test_document_that_is_cut_short_ends_alike(schema: Any, document: str) -> None:
    compiled, data = compile_schema(schema), document.encode()
    for at in range(len(data)):
        assert encode(compiled, data[:at]) == encode_slowly(compiled, data[:at])
