"""An error is told at the first byte after which no valid document exists, as trying the documents shows.

That a document still exists is shown by one (`helpers.completions`); that none does, by trying all of a small world.
The schemas are such that each of their parts can be kept: contradictions are not looked for (SPEC.md section 8).
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.codec_cases import RELAXED, broken_texts, encode, encode_slowly, run, texts_of
from helpers.completions import Completer, scan
from ssop_codec import Encoder, compile_schema

NAMES = ("a", "b", "ab")
TEXTS = ("", "a", "b", "ab", "ba", "abb", "é")
TEXT_PATTERNS = ("^a", "b$", "^[a-c]{2}$", "^(?:ab|é)", "^a*b$")
CHARS = "abé"
MORE_CHARS = 3
VALUES = (
    *(
        "0",
        "1",
        "2",
        "3",
        "5",
        "-1",
        "1.5",
        '""',
        '"a"',
        '"b"',
        '"ab"',
        '"abb"',
        '"é"',
        '"aaab"',
        "true",
        "false",
        "null",
    ),
    *("{}", "[]", "[1]", '{"a": 1}', '{"b": 1}', '{"a": "a"}', '{"b": "ab"}'),
)
NUMBER_ENDINGS = [
    "".join(part)
    for part in itertools.product(
        ("", "0", "1", "2", "5", "00"), ("", ".0", ".5", ".1", ".2", ".3"), ("", "e0", "e1", "e2")
    )
]
ESCAPE_ENDINGS = ("n", '"', "\\", *(f"u00{code}" for code in ("61", "62", "e9", "41")))


def ranges(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda pair: (min(pair), max(pair)))


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return {"enum": draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3, unique=True))}
    if kind == 1:
        return {"type": "string", "pattern": draw(st.sampled_from(TEXT_PATTERNS))}
    if kind == 2:
        low, high = draw(ranges(0, 3))
        return {"type": "string", "minLength": low, "maxLength": high}
    return {"type": "string", "not": {"const": draw(st.sampled_from(TEXTS))}}


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    low, high = draw(ranges(-2, 5))
    schema: dict[str, Any] = {"type": draw(st.sampled_from(("integer", "number")))}
    if draw(st.booleans()):
        schema["minimum"] = low
    if draw(st.booleans()):
        schema["maximum"] = high
    return draw(
        st.just(schema) | st.sampled_from(({"enum": [1, 2.5]}, {"const": 3}, {"type": "integer", "multipleOf": 2}))
    )


LITERALS = st.sampled_from(({"type": "boolean"}, {"type": "null"}, {"const": True}, {"type": ["null", "boolean"]}))


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    named = draw(st.dictionaries(st.sampled_from(NAMES), inner | st.just(False), max_size=3))
    required = [name for name in named if named[name] is not False and draw(st.booleans())]
    others = draw(st.sampled_from(("any", "none", "some", "pattern")))
    if others == "none":
        schema["additionalProperties"] = False
    elif others == "some":
        schema["additionalProperties"] = draw(inner)
    elif others == "pattern":
        named, required = {}, []
        schema |= {
            "patternProperties": {draw(st.sampled_from(TEXT_PATTERNS)): draw(inner)},
            "additionalProperties": False,
        }
    # With names that are required too, the two may make impossible together what neither does (SPEC section 8).
    if others == "any" and not required and draw(st.booleans()):
        schema["maxProperties"] = draw(st.integers(0, 1))
    return schema | {"properties": named, "required": required}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    low, high = draw(ranges(0, 3))
    if draw(st.booleans()):
        first = draw(st.lists(inner, min_size=1, max_size=2))
        return {"type": "array", "prefixItems": first, "items": False}
    return {"type": "array", "items": draw(inner), "minItems": min(low, 2), "maxItems": max(high, 1)}


LEAVES = strings() | numbers() | LITERALS


@st.composite
def tagged(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    """A union of objects that a constant tells apart, wherever it comes."""
    branches: list[dict[str, Any]] = [
        {"type": "object", "properties": {"a": {"const": tag}, "b": draw(inner)}, "required": ["a"]}
        for tag in ("a", "ab", 1)
    ]
    for branch in branches:
        if draw(st.booleans()):
            branch["additionalProperties"] = False
    return {"oneOf": branches}


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | arrays(inner)
        | tagged(inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda kids: {"anyOf": kids})
        | st.tuples(strings(), numbers(), LITERALS).map(lambda kids: {"oneOf": list(kids)})
    ),
    max_leaves=5,
)
WORLD: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([json.loads(value) for value in VALUES]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from((*NAMES, "c")), inner, max_size=3),
    max_leaves=5,
)


def fitting(schema: Any) -> st.SearchStrategy[Any]:
    """Values that mostly keep the schema."""
    if isinstance(schema, bool):
        return WORLD
    if "anyOf" in schema or "oneOf" in schema:
        return st.one_of([fitting(kid) for kid in schema.get("anyOf") or schema["oneOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if schema["type"] == "object":
        known = {name: fitting(kid) for name, kid in schema["properties"].items()}
        required = {name: known.pop(name) for name in schema["required"]}
        others = schema.get("additionalProperties", True)
        others = next(iter(schema.get("patternProperties", {"": others}).values()))
        more = st.dictionaries(st.sampled_from((*NAMES, "aab", "é")), fitting(others), max_size=1)
        return st.builds(lambda a, b: a | b, st.fixed_dictionaries(required, optional=known), more)
    if schema["type"] == "array":
        first = [fitting(kid) for kid in schema.get("prefixItems", ())]
        rest = st.lists(fitting(schema["items"]), max_size=3)
        return st.builds(lambda a, b: [*a, *b], st.tuples(*first), rest)
    texts = st.sampled_from((*TEXTS, "aa", "aab", "éa", "éé"))
    values = {"string": texts, "boolean": st.booleans(), "null": st.none(), "integer": st.integers(-3, 30)}
    values["number"] = st.integers(-30, 60).map(lambda tenths: tenths / 10) | st.sampled_from((1e5, 2e-3))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([values[kind] for kind in kinds])


def endings(state: str, token: str) -> Iterator[str]:
    """Ways to end the token that is open."""
    if state == "literal":
        yield from (word[len(token) :] for word in ("true", "false", "null") if word.startswith(token))
    elif state == "number":
        yield from NUMBER_ENDINGS
        yield from ("-1", "-2", "+1") if token[-1] in "eE" else ()
    elif state in ("string", "key"):
        escapes = [""]
        if token.endswith("\\") and not token.endswith("\\\\"):
            escapes = list(ESCAPE_ENDINGS)
        for count in range(MORE_CHARS + 1):
            for escape, chars in itertools.product(escapes, itertools.product(CHARS, repeat=count)):
                yield escape + "".join(chars) + '"'
    else:
        yield ""


def closings(stack: str, state: str, budget: int) -> Iterator[str]:
    """Ways to end what is open behind a token, with at most `budget` more members."""
    if state == "colon":
        for value in VALUES:
            yield from (f": {value}{rest}" for rest in closings(stack, "after", budget))
    elif state == "value":
        for value in VALUES:
            yield from (f"{value}{rest}" for rest in closings(stack, "after", budget))
    elif not stack:
        yield ""
    else:
        if state != "next_key":
            close = "}" if stack[-1] == "{" else "]"
            yield from (close + rest for rest in closings(stack[:-1], "after", budget))
        if budget:
            comma = ", " if state == "after" else ""
            for name in (f'"{name}": ' for name in (*NAMES, "c", "aab")) if stack[-1] == "{" else ("",):
                for value in VALUES:
                    yield from (comma + name + value + rest for rest in closings(stack, "after", budget - 1))


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def can_become_valid(validator: Any, prefix: bytes) -> bool:
    """Whether one of many documents that begin so is valid."""
    stack, state, token = scan(prefix.decode(errors="ignore").encode())
    if state in ("string", "key"):
        after = "colon" if state == "key" else "after"
    else:
        after = state if state not in ("number", "literal") else "after"
    start = prefix.decode(errors="ignore")
    begun = prefix[len(start.encode()) :]
    for budget in (0, 1):
        tails = list(closings(stack, after, budget))
        for ending in endings(state, token):
            if begun and not ending[0].encode().startswith(begun):
                continue
            for tail in tails:
                try:
                    document = json.loads(start + ending + tail, object_pairs_hook=unique_keys)
                except ValueError:
                    # No JSON in any case: so it is with all tails, but for keys that come twice.
                    if '"' not in tail:
                        break
                    continue
                if validator.is_valid(document):
                    return True
    return False


# Shrinking would try the small world over and over. The examples are the same each time: others, one in some hundreds,
# hold what several keywords make impossible together, which is told later (SPEC section 8).
@settings(RELAXED, phases=(Phase.explicit, Phase.generate), derandomize=True)
@given(st.data(), SCHEMAS, WORLD)
def test_error_is_told_at_the_first_byte_after_which_nothing_is_valid(
    data: st.DataObject, schema: Any, value: Any
) -> None:
    value = data.draw(fitting(schema) | st.just(value))
    text = data.draw(texts_of(value) | broken_texts(value))
    known = compile_schema(schema)
    whole = encode(known, text)
    assert whole == encode_slowly(known, text)
    for size in (1, 2, 3):
        assert run(Encoder, known, [text[at : at + size] for at in range(0, len(text), size)]) == whole
    violation = whole[2]
    valid_so_far = text if violation is None else text[: violation.offset_bytes]
    is_whole = valid_so_far.decode(errors="ignore").encode() == valid_so_far
    assert not is_whole or Completer(schema, []).complete(valid_so_far) is not None, "told late"
    is_at_end = violation is None or violation.offset_bytes == len(text)
    if not is_at_end and violation.rule not in ("syntax", "utf8", "trailing"):
        validator = jsonschema_rs.Draft202012Validator(schema)
        assert not can_become_valid(validator, text[: violation.offset_bytes + 1]), "told early"
