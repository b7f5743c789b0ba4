"""Proves that a JSON text can still become a document that a schema allows, by finding one.

The search tries what the schema speaks of: its names, members, bounds, texts that match its patterns. The encoder only
says which way not to go on; that a document is valid is said by another validator, about the whole of it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from ssop_codec import Encoder, SchemaError, Verdict, Violation, compile_schema
from ssop_codec._pattern_py import SlowPattern, slow_pattern
from ssop_codec.formats import SHAPES
from ssop_codec.pattern import compile_pattern

MAX_RUNS = 6000
"""Texts that are tried for one completion."""
MAX_DEPTH = 60
SCALARS = (
    *("0", '""', "true", "null", "false", "1", "-1", "0.5", "{", "[", '"a"', "-0", "10", "100", "1000000", '"0"'),
    *("2", "3", "5", "1e9", "-5", "-100", "1e20"),
)
TEXTS = (
    *("2024-01-01", "12:00:00Z", "2024-01-01T12:00:00Z", "123e4567-e89b-12d3-a456-426614174000", "1.2.3.4", "::1"),
    *("a.b", "a@b.co", "http://a.b/", "a:b", "P1D", "P1W", "/a", "0", "{a}", "#", "Z", "a" * 57, "abcdefgh"),
    *("1234567890", "192.168.0.0/24", "A", "AA", "abc", "x", "^a$", "example.com", "https://example.com/a/b"),
)
ENDINGS = ('.co"', '@b.co"', ':a"', '://a.b"', '/a"', 'Z"')
NUMBER_ENDINGS = (
    *("", ".1e1", ".1e2", ".5e1", ".5e2", ".25e1", ".25e3", ".125e3", ".3e1", ".2e1", ".1e4", ".1e5", ".1e6", ".1e8"),
    *(*"0123456789", ".5", ".1", "00", "000", "0000", "00000", "e1", "e2", "e3", "e5", "e9", "e20", "e-1", "e-2"),
    *("e-3", "e-5", "e-9", "e-30", ".0", "0e1", "e+1", "10", "50", "99"),
)
FRACTION_ENDINGS = (
    *("", "0", "5", "1", "2", "25", "00", "0e1", "e1", "e2", "e3", "0e2", "0e3", "e-1", "e-2", "e-5", "5e1", "0e5"),
    *("e9", "e20", "00e9", "0e-30", "e-30", "25e2", "75", "50", *(f"0e{n}" for n in range(4, 18))),
    *(f"e{n}" for n in range(4, 18)),
)
EXPONENT_ENDINGS = (*"012345", "9", "-1", "-2", "-3", "-9", "-20", "+1", "+2", "+9", "10", "20", "-30", "00", "")
REPRESENTATIVES = [ord(c) for c in "a0A-1.:/ Z_@bx2z+T,(){}[]#=&?%$!'\"<>\\|~^`*;9\né中😀"]


@dataclass
class Words:
    """What a schema speaks of."""

    keys: dict[str, None] = field(default_factory=dict)
    values: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)

    def read(self, schema: Any) -> None:
        """Collect from a schema and those in it."""
        if isinstance(schema, list):
            for inner in schema:
                self.read(inner)
        if not isinstance(schema, dict):
            return
        for keyword, said in schema.items():
            if keyword == "patternProperties" and isinstance(said, dict):
                self.patterns.update(dict.fromkeys(said))
            elif keyword in ("properties", "dependencies", "dependentRequired", "dependentSchemas"):
                self.keys.update(dict.fromkeys(said if isinstance(said, dict) else ()))
            elif keyword == "required" and isinstance(said, list):
                self.keys.update(dict.fromkeys(name for name in said if isinstance(name, str)))
            elif keyword in ("enum", "examples") and isinstance(said, list):
                self.values.update(dict.fromkeys(map(_dump, said)))
            elif keyword in ("const", "default", "example"):
                self.values[_dump(said)] = None
            elif keyword == "pattern" and isinstance(said, str):
                self.patterns[said] = None
            elif keyword == "format" and isinstance(said, str) and said in SHAPES:
                self.patterns[SHAPES[said]] = None
            elif keyword == "minLength" and isinstance(said, int) and said < 2000:
                self.values[_dump("a" * said)] = None
            self._read_bound(keyword, said)
            self.read(said)

    def _read_bound(self, keyword: str, said: Any) -> None:
        if isinstance(said, bool) or not isinstance(said, (int, float)):
            return
        if keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            self.values.update(dict.fromkeys(_dump(said + shift) for shift in (0, 1, -1, 0.5, -0.5)))
        if keyword == "multipleOf":
            self.values.update(dict.fromkeys(_dump(said * times) for times in range(2, 6)))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def leaves_of(value: Any) -> Iterator[str]:
    """The scalars of a document, as JSON."""
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves_of(inner)
    else:
        yield _dump(value)


def endings(pattern: str, start: str, *, min_chars: int = 0, count: int = 3, max_states: int = 600) -> list[str]:
    """Some of the shortest texts that make `start` match."""
    try:
        compile_pattern(pattern)
    except SchemaError:
        return []
    known: SlowPattern = slow_pattern(pattern)
    state = known.start()
    for c in start:
        state = known.step(state, ord(c))
    found: list[str] = []
    queue = [(state, "")] if not known.is_dead(state) else []
    seen = {(state, min(len(start), min_chars))}
    for state, text in queue:
        chars = len(start) + len(text)
        if known.accepts(state) and chars >= min_chars:
            found.append(text)
        if len(found) >= count or len(queue) >= max_states:
            break
        for point in REPRESENTATIVES:
            after = known.step(state, point)
            key = (after, min(chars + 1, min_chars))
            if not known.is_dead(after) and key not in seen:
                seen.add(key)
                queue.append((after, text + chr(point)))
    return found


def scan(prefix: bytes) -> tuple[str, str, str]:
    """The open containers of a JSON text (`{` and `[`), what is open or comes next in them, and its text so far.

    That is `string`, `key`, `number`, `literal`; or `value`, `first`, `next_key`, `colon`, `after`.
    """
    text = prefix.decode(errors="surrogateescape")
    at = 0
    stack = ""
    state = "value"
    while at < len(text):
        c = text[at]
        end = at + 1
        if c == '"':
            is_key = state in ("first", "next_key") and stack.endswith("{")
            while end < len(text) and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            if end >= len(text):
                return stack, "key" if is_key else "string", text[at + 1 :]
            state = "colon" if is_key else "after"
            end += 1
        elif c in "{[":
            stack += c
            state = "first"
        elif c in "}]":
            stack = stack[:-1]
            state = "after"
        elif c == ":":
            state = "value"
        elif c == ",":
            state = "next_key" if stack.endswith("{") else "value"
        elif c not in " \t\r\n":
            while end < len(text) and text[end] not in " \t\r\n,]}":
                end += 1
            if end == len(text):
                return stack, "number" if c in "-0123456789" else "literal", text[at:]
            state = "after"
        at = end
    return stack, state, ""


class Completer:
    """Completes texts under one schema. `known_values` are scalars, as JSON, that its documents may hold."""

    def __init__(self, schema: Any, known_values: list[str]) -> None:
        self.compiled = compile_schema(schema)
        self.validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        words = Words()
        words.read(schema)
        self.keys = list(words.keys)[:400]
        self.patterns = list(words.patterns)[:60]
        texts = [_dump(text) for pattern in self.patterns for n in (0, 8) for text in endings(pattern, "", min_chars=n)]
        values = (*SCALARS, *sorted(words.values, key=len)[:300], *texts[:200], *map(_dump, TEXTS), *known_values)
        self.values = list(dict.fromkeys(values))
        self.texts = [json.loads(value) for value in self.values if value.startswith('"')]
        self.runs = 0
        self.tried: set[bytes] = set()

    def complete(self, prefix: bytes) -> bytes | None:
        """A valid document that begins with the prefix; None where none was found."""
        self.runs = 0
        self.tried = set()
        stack, state, token = scan(prefix)
        if state not in ("string", "key", "number", "literal"):
            return self._go_on(prefix, stack, state, 0)
        after = "colon" if state == "key" else "after"
        for ending in self._token_endings(state, token):
            text = prefix + ending.encode(errors="surrogatepass")
            if self._breaks(text, state == "number"):
                continue
            if scan(text)[1] in ("string", "key"):
                # An escape was ended; the string goes on.
                found = self._end_string(text, stack, after)
            else:
                found = self._go_on(text, stack, after, 0)
            if found or self.runs > MAX_RUNS:
                return found
        return None

    def _breaks(self, text: bytes, is_number: bool = False) -> Violation | None:
        """What the text breaks, whatever follows; a number is judged as a whole."""
        self.runs += 1
        encoder = Encoder(self.compiled)
        encoder.feed(text + b" " if is_number else text)
        return encoder.violation

    def _is_valid(self, text: bytes) -> bool:
        encoder = Encoder(self.compiled)
        encoder.feed(text)
        encoder.finish()
        try:
            return encoder.verdict == Verdict.OK and bool(self.validator.is_valid(json.loads(text)))
        except ValueError:
            return False

    # -- the token that is open ------------------------------------------------------------------------------

    def _token_endings(self, state: str, token: str) -> list[str]:
        if state == "literal":
            return [word[len(token) :] for word in ("true", "false", "null") if word.startswith(token)]
        if state == "number":
            has_exponent = "e" in token.lower()
            own = EXPONENT_ENDINGS if has_exponent else FRACTION_ENDINGS if "." in token else NUMBER_ENDINGS
            known = [value[len(token) :] for value in self.values if value.startswith(token)]
            return list(dict.fromkeys((*own, *known)))
        pool = self.keys if state == "key" else self.texts
        for cut in range(7):
            head = token[: len(token) - cut]
            try:
                plain = json.loads(f'"{head}"', strict=False)
            except ValueError:
                continue
            return self._escape_endings(plain, token[len(head) :], pool) if cut else self._text_endings(plain, pool)
        return ['"']

    def _text_endings(self, plain: str, pool: list[str]) -> list[str]:
        known = [text[len(plain) :] for text in (*pool, *TEXTS) if text.startswith(plain) and text != plain]
        made = [text for pattern in self.patterns for n in (0, 8, 24) for text in endings(pattern, plain, min_chars=n)]
        runs = [c * n for n in (1, 2, 3, 5, 8, 16, 32, 64, 128, 255) for c in "a0"]
        return list(dict.fromkeys(('"', *(_dump(text)[1:] for text in (*known, *made, *runs)), *ENDINGS)))

    def _escape_endings(self, plain: str, tail: str, pool: list[str]) -> list[str]:
        """`tail` is the part of an escape."""
        if tail == "\\":
            ends = ["n", '"', "\\", "/", "t", "u0041", "u0030", "u002d"]
        else:
            digits = tail[2:]
            wanted = [f"{ord(text[len(plain)]):04x}" for text in pool if text.startswith(plain) and text != plain]
            ends = [code[len(digits) :] for code in wanted if code.startswith(digits.lower())]
            ends += [end[len(digits) :] for end in ("0041", "0030")] + [c * (4 - len(digits)) for c in "0124df"]
        return [*(end + '"' for end in ends), *(end + 'a"' for end in ends), *ends]

    def _end_string(self, text: bytes, stack: str, after: str) -> bytes | None:
        _, state, token = scan(text)
        for ending in self._token_endings(state, token)[:40]:
            longer = text + ending.encode(errors="surrogatepass")
            if not self._breaks(longer):
                found = self._go_on(longer, stack, after, 0)
                if found:
                    return found
        return None

    # -- what follows ----------------------------------------------------------------------------------------

    def _go_on(self, text: bytes, stack: str, state: str, depth: int) -> bytes | None:
        if self.runs > MAX_RUNS or depth > MAX_DEPTH or text in self.tried:
            return None
        self.tried.add(text)
        if state == "after" and not stack:
            return text if self._is_valid(text) else None
        if state == "colon":
            return None if self._breaks(text + b":") else self._go_on(text + b":", stack, "value", depth + 1)
        if state == "value":
            return self._add_value(text, stack, depth)
        closed = text + (b"}" if stack[-1] == "{" else b"]")
        violation = self._breaks(closed)
        if state != "next_key":
            found = None if violation else self._go_on(closed, stack[:-1], "after", depth)
            if found:
                return found
            text += b", " if state == "after" else b""
            if self._breaks(text):
                return None
        return self._add_member(text, stack, depth, "" if violation is None else violation.expected)

    def _add_member(self, text: bytes, stack: str, depth: int, expected: str) -> bytes | None:
        """`expected` may name what the object lacks."""
        if stack[-1] == "[":
            return self._add_value(text, stack, depth)
        wanted = sorted((key for key in self.keys if key and key in expected), key=len, reverse=True)
        count = 0
        for key in list(dict.fromkeys((*wanted, *self.keys, "x", "X", "a", "0", "zz9")))[:120]:
            longer = text + _dump(key).encode() + b": "
            if self._breaks(longer):
                continue
            count += 1
            found = self._add_value(longer, stack, depth + 1)
            if found or self.runs > MAX_RUNS or count > (11 if depth < 8 else 3):
                return found
        return None

    def _add_value(self, text: bytes, stack: str, depth: int) -> bytes | None:
        count = 0
        for value in self.values:
            longer = text + value.encode()
            if self._breaks(longer, value not in "{["):
                continue
            if value in "{[":
                found = self._go_on(longer, stack + value, "first", depth + 1)
            else:
                count += 1
                found = self._go_on(longer, stack, "after", depth + 1)
            if found or self.runs > MAX_RUNS or count > (13 if depth < 6 else 2):
                return found
        return None
