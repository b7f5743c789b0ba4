"""JSON-Schema-Test-Suite, drafts 2020-12 and 7, through the codec."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.codec_cases import encode
from helpers.components import suites_dir
from ssop_codec import SchemaError, Verdict, compile_schema

pytestmark = pytest.mark.needs("suites")

DIALECTS = {"draft2020-12": "2020-12", "draft7": "draft-07"}
REFUSED = {
    "draft2020-12": {
        "dynamicRef.json": {"$dynamicRef", "$ref", "unevaluatedProperties", "unevaluatedItems"},
        "defs.json": {"$ref"},
        "id.json": {"$ref"},
        "not.json": {"unevaluatedProperties"},
        "ref.json": {"$ref", "unevaluatedProperties"},
        "refRemote.json": {"$ref"},
        "unevaluatedItems.json": {"unevaluatedItems", "$dynamicRef"},
        "unevaluatedProperties.json": {"unevaluatedProperties", "$dynamicRef", "$ref"},
    },
    "draft7": {"definitions.json": {"$ref"}, "ref.json": {"$ref"}, "refRemote.json": {"$ref"}},
}
"""By file, the keywords that schemas may be refused by: references to other documents, dynamic references,
`unevaluated*`."""
WRONG: dict[str, set[str]] = {
    "draft2020-12": {"vocabulary.json"},
    "draft7": set(),
}
"""Files that ask for what a codec does not do: read another metaschema."""


def files() -> list[tuple[str, Path]]:
    folder = suites_dir()
    if folder is None:
        return []
    tests = folder / "suites" / "json-schema-test-suite" / "tests"
    return [(draft, path) for draft in DIALECTS for path in sorted((tests / draft).glob("*.json"))]


@pytest.mark.parametrize(("draft", "path"), files(), ids=lambda value: value.stem if isinstance(value, Path) else value)
def test_verdicts_are_those_of_the_suite(draft: str, path: Path) -> None:
    allowed = REFUSED[draft].get(path.name, set())
    wrong: list[tuple[object, ...]] = []
    for group in json.loads(path.read_text()):
        try:
            # In the suite a format is an annotation.
            schema = compile_schema(group["schema"], format_assertion=False, dialect=DIALECTS[draft])  # type: ignore[arg-type]
        except SchemaError as error:
            if error.keyword not in allowed:
                wrong.append((group["description"], str(error)))
            continue
        for test in group["tests"]:
            _, verdict, violation, _ = encode(schema, _text(test["data"]))
            if (verdict == Verdict.OK) != test["valid"]:
                wrong.append((group["description"], test["description"], violation))
    if path.name in WRONG[draft]:
        return
    assert not wrong


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
