"""Regular expressions: what matches, what is refused by which name, what it costs."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.codec_cases import encode
from ssop_codec import Encoder, Limits, SchemaError, Verdict, compile_schema
from ssop_codec import pattern as pattern_module
from ssop_codec._pattern import Pattern
from ssop_codec.pattern import compile_pattern
from ssop_codec.pattern_nfa import build
from ssop_codec.pattern_syntax import parse


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("b", ["b", "abc"], ["", "ac"]),
        ("", ["", "x"], []),
        ("^b", ["b", "bc"], ["ab"]),
        ("b$", ["b", "ab"], ["bc", "b\n"]),
        ("a|^$", ["", "xa"], ["x"]),
        ("^(a|bc)d$", ["ad", "bcd"], ["abcd", "d"]),
        (".", ["x", "é", "😀"], ["\n", "\r", "\u2028", ""]),
        (r"^\d+$", ["019"], ["٣", "a"]),
        (r"^\w$", ["a", "Z", "0", "_"], ["é", "-"]),
        (r"^\W$", ["é", "-"], ["a"]),
        (r"^\s$", [" ", "\t", "\u00a0", "\ufeff", "\u2029"], ["a", "\u200b", "\x1c"]),
        (r"^\D\S$", ["a-"], ["1-", "a "]),
        (r"^[a-c\d_-]+$", ["a1_-"], ["d"]),
        (r"^[^a-c]$", ["d", "\n"], ["a", ""]),
        (r"^[\w-.]+$", ["a-."], ["/"]),
        (r"^[]$", [], ["", "a", "]"]),
        (r"^[^]$", ["a", "\n"], [""]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"^\t\n\v\f\r\0\cA\x41\u0042\u{1F600}$", ["\t\n\v\f\r\0\x01AB😀"], [""]),
        (r"^\ud83d\ude00$", ["😀"], ["😁"]),
        (r"^\.\/\-\@\"$", ['./-@"'], []),
        (r"^a{2}$", ["aa"], ["a", "aaa"]),
        (r"^a{2,}$", ["aa", "aaaa"], ["a"]),
        (r"^a{1,2}?$", ["a", "aa"], ["", "aaa"]),
        (r"^(a+?b*?)??$", ["", "a", "ab"], ["b"]),
        (r"^(a{0,2}){0,2}$", ["", "aaaa"], ["aaaaa"]),
        (r"^a{,2}$", ["a{,2}"], ["a"]),
        (r"^{}]$", ["{}]"], []),
        (r"^(?:a)(?<name>b)$", ["ab"], ["a"]),
        (r"\bb\b", ["a b", "b"], ["ab", "b_"]),
        (r"^\B.\B$", ["-"], ["a"]),
        (r"^(?!ab).*$", ["ac", ""], ["ab", "abc"]),
        (r"^(?=.*\d)(?=.*[a-z]).{3,}$", ["a1-"], ["a1", "abc", "123"]),
        (r"^((?!no).)*$", ["yes"], ["a no b"]),
        (r"a(?!b)", ["ac", "aba"], ["ab"]),
        (r"a(?=b$)", ["ab"], ["abc", "a"]),
        (r"^(?=(?!b)[ab])..$", ["ab"], ["ba"]),
        (r"^(?!x)^a", ["a"], ["x"]),
        (r"^[\p{Lu}\p{Nd}]\P{L}$", ["Á1", "٣-"], ["á1", "ÁB"]),
        (r"^\p{General_Category=Uppercase_Letter}\p{gc=Zs}\p{Letter}$", ["Á é"], ["á é"]),
        (r"^\p{Script=Han}\p{sc=Latn}\p{Script=Cyrillic}\P{sc=Hiragana}$", ["漢éжх"], ["漢éжあ", "あéжх"]),
        (r"^\p{ASCII}\p{Any}\p{Assigned}\p{LC}$", ["a😀bÁ"], ["éaaa", "aaa1"]),
        ("x^a|b$c", [], ["xa", "bc", "x^a"]),
    ],
)
def test_pattern_matches_as_ecma_262_has_it(text: str, matching: list[str], other: list[str]) -> None:
    pattern = compile_pattern(text)
    assert [t for t in matching if not pattern.search(t)] == []
    assert [t for t in other if pattern.search(t)] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"(a)\1", "backreference"),
        (r"(?<n>a)\k<n>", "backreference"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "lookbehind"),
        ("(?i)a", "this kind of group"),
        ("(?P<n>a)", "this kind of group"),
        (r"a\Z", "the escape"),
        (r"\p{Script=Klingon}", "Unicode property"),
        (r"\p{Script_Extensions=Latin}", "Unicode property"),
        (r"\pL", "without a name"),
        ("a**", "something to repeat"),
        ("a++", "something to repeat"),
        ("*a", "something to repeat"),
        ("^*", "something to repeat"),
        ("a{1}{2}", "something to repeat"),
        ("a{2,1}", "out of order"),
        ("[b-a]", "out of order"),
        ("(a", "without its )"),
        ("a)", "without its ("),
        ("[a", "too early"),
        ("a\\", "too early"),
        (r"\x4", "hexadecimal"),
        (r"\u{110000}", "code point"),
        (r"\c1", "letter"),
        ("(?<1>a)", "group name"),
        ("(?<a>.)(?<a>.)", "group name"),
    ],
)
def test_unsupported_syntax_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match="pattern at /p: .*" + reason.replace("(", r"\(").replace(")", r"\)")):
        compile_pattern(text, pointer="/p")


@pytest.mark.parametrize(
    ("text", "cap"),
    [
        ("a" * 8193, "max_pattern_chars"),
        ("(" * 65 + ")" * 65, "max_pattern_depth"),
        ("a{10000}", "max_pattern_states"),
        ("(((a{99}){99}){99}){99}", "max_pattern_states"),
        ("a{0,999999999999999999999999}", "max_pattern_states"),
        ("(?!.*a.{30}$).*b.{30}$", "max_pattern_states"),
        ("(?=(.*a){9})(?=(.*b){9})(?=(.*c){9})(?=(.*d){9}).*", "max_pattern_states"),
    ],
)
def test_cap_of_patterns_is_named(text: str, cap: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_pattern(text)
    assert caught.value.keyword == cap


def test_repeating_the_empty_text_costs_nothing() -> None:
    assert compile_pattern("^((){999999999}a){2}$").search("aa")


EVIL = [
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+$",
    "(a*)*c",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(x+x+)+y",
    "a?" * 25 + "a" * 25 + "$",
]


@pytest.mark.parametrize("text", [*EVIL, "(.*a.{40}){2}b", "((a{1,20}){1,20}b)+c", "[ab]*a[ab]{16}c"])
def test_work_is_linear_in_the_text(text: str) -> None:
    nfa = build(parse(text, max_depth=64), max_states=10_000)
    pattern = Pattern(text, nfa)
    before = pattern.work
    pattern.search("aaaaabxxab" * 1_000)
    assert pattern.work - before <= 10_000 * 4 * len(nfa.kinds)


def test_kept_states_are_bounded() -> None:
    text = "[ab]*a[ab]{16}c"
    nfa = build(parse(text, max_depth=64), max_states=10_000)
    pattern = Pattern(text, nfa, None, 1)
    words = ("".join(pair) for pair in itertools.product("ab", repeat=12))
    assert not pattern.search("".join(words))
    assert pattern.kept_states <= 64


def test_states_beyond_those_that_are_kept_match_all_the_same() -> None:
    text = "^[ab]*a[ab]{12}$"
    pattern = Pattern(text, build(parse(text, max_depth=64), max_states=10_000), None, 1)
    words = ["".join(pair) for pair in itertools.product("ab", repeat=8)]
    long = "".join(words)
    assert [pattern.search(long + word + "abab") for word in words] == [(long + word)[-9] == "a" for word in words]


WIDE = {"type": "string", "pattern": "^[ab]*a[ab]{18}$"}
"""A pattern with more deterministic states than are kept."""


def random_text(seed: int, size: int) -> str:
    return "".join(random.Random(seed).choices("ab", k=size))


def test_encoders_share_a_pattern_beyond_its_kept_states() -> None:
    schema = compile_schema(WIDE)
    texts = [random_text(seed, 12_000) for seed in range(3)]
    encoders = [Encoder(schema) for _ in texts]
    for pieces in zip(*(f'"{text}"' for text in texts), strict=True):
        for encoder, piece in zip(encoders, pieces, strict=True):
            encoder.feed(piece.encode())
    assert [encoder.is_done for encoder in encoders] == [text[-19] == "a" for text in texts]


def test_string_whose_state_was_dropped_ends_with_limit() -> None:
    schema = compile_schema(WIDE)
    busy, waiting = Encoder(schema), Encoder(schema)
    busy.feed(f'"{random_text(4, 12_000)}'.encode())
    waiting.feed(f'"{random_text(5, 50)}'.encode())
    busy.feed(random_text(6, 12_000).encode())
    waiting.feed(b"a")
    violation = waiting.violation
    assert violation is not None
    assert (violation.rule, violation.expected) == ("limit", "a pattern that needs fewer states")


def test_threads_share_a_pattern() -> None:
    pattern = compile_pattern("^[ab]*a[ab]{17}$")
    texts = [random_text(seed, 3_000) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(pattern.search, texts))
    assert found == [text[-18] == "a" for text in texts]


def test_cache_of_patterns_is_bounded() -> None:
    for number in range(pattern_module.CACHED_PATTERNS + 50):
        compile_pattern(f"a{number}")
    assert len(pattern_module._cache) == pattern_module.CACHED_PATTERNS


def test_pattern_is_compiled_once() -> None:
    assert compile_pattern("^once$") is compile_pattern("^once$")


def test_limits_are_part_of_the_cache() -> None:
    compile_pattern("a{100}")
    with pytest.raises(SchemaError, match="max_pattern_states"):
        compile_pattern("a{100}", limits=Limits(max_pattern_states=50))


# -- while a document is read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "offset"),
    [
        ("^[a-z]+$", '"ab1cd"', 3),
        ("^[a-z]+$", '"abé"', 3),
        ("^[à-ÿ]+$", '"é€"', 3),
        ("^[à-ÿ]+$", '"éÀ"', 4),
        ("^[a-z]+$", '""', 1),
        ("^a$", '"ab"', 2),
        ("^a$", '"a\\n"', 2),
        ("^[a-z]$", '"\\n"', 2),
        ("^[a-z]$", '"\\u0030"', 5),
        ("^[a-z]$", '"\\ud83d\\ude00"', 3),
        ("^[😀-😏]$", '"\\ud83e\\ude00"', 6),
        ("^[😀-😏]$", '"\\ud83d\\ude10"', 11),
        ("b", '"aaa"', 4),
        ("[]", '"a"', 0),
        ("^(?!tag$).*$", '"tag"', 4),
        ("^(?!tag).*$", '"tagged"', 3),
    ],
)
def test_pattern_is_judged_at_the_first_byte_that_decides(pattern: str, text: str, offset: int) -> None:
    violation = encode(compile_schema({"type": "string", "pattern": pattern}), text.encode())[2]
    assert (violation.rule, violation.offset_bytes) == ("pattern", offset)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^[a-z]$", r'"\u0071"'),
        ("^[😀-😏]$", r'"\ud83d\ude00"'),
        ("^[😀-😏]$", '"😀"'),
        ("b", '"aba"'),
        (r"^\n$", r'"\n"'),
    ],
)
def test_matching_string_is_sent(pattern: str, text: str) -> None:
    assert encode(compile_schema({"type": "string", "pattern": pattern}), text.encode())[1] == Verdict.OK


def test_pattern_says_what_was_expected() -> None:
    schema = compile_schema({"type": "object", "properties": {"a": {"pattern": "^b$"}}})
    violation = encode(schema, b'{"a": "c"}')[2]
    assert (violation.pointer, violation.expected) == ("/a", "a text that matches ^b$")


def test_parts_of_a_long_string_leave_before_its_pattern_is_decided() -> None:
    schema = compile_schema({"type": "string", "pattern": "z$"})
    chunks, verdict, violation, _ = encode(schema, b'"' + b"a" * 1_000 + b'"', stream_buffer_bytes=128)
    assert (len(chunks) > 8, verdict, violation.offset_bytes) == (True, Verdict.INVALID, 1_001)


def test_enum_members_that_do_not_match_are_left_out() -> None:
    schema = compile_schema({"type": "string", "pattern": "^a", "enum": ["ab", "b"]})
    assert encode(schema, b'"b"')[2].offset_bytes == 1


def test_pattern_of_another_type_says_nothing() -> None:
    assert encode(compile_schema({"pattern": "^a"}), b"1")[1] == Verdict.OK
