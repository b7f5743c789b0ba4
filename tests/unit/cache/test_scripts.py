"""The Lua files keep the rules that the oldest server and a cluster need."""

import re

import pytest

from helpers.script_calls import Admit, Ending
from ssop_cache.core import scripts
from ssop_cache.core.asked import Settlement
from ssop_cache.core.changes import Cursor, log_changes, read_changes
from ssop_cache.core.flushes import read_epoch
from ssop_cache.core.hints import share_hints
from ssop_cache.core.keys import Layout
from ssop_cache.core.neighbours import drop_similar, find_similar, put_similar
from ssop_cache.core.registry import announce_node, list_nodes, withdraw_node
from ssop_cache.core.scripts import Limits, ScriptCall
from ssop_cache.store import load_scripts

TEXTS = load_scripts()
KEY = b"\1" * 32
KEYS = Layout(1, "1").of_tenant("acme")
CALLS = [
    scripts.admit(KEYS, Limits(), [], lease_ms=1),
    scripts.conclude(KEYS, Limits()),
    scripts.end(KEYS, [], max_backlog_bytes=1),
    scripts.read_keys(0),
    scripts.drop_key("k", b"x"),
    scripts.write_key("k", b"", b"x", most=1),
    scripts.append(KEYS, KEY, 1, b"", lease_ms=1, max_backlog_bytes=1),
    scripts.renew(KEYS, [], [], reservation_ms=1, lease_ms=1),
    scripts.seal(KEYS, []),
    scripts.join(KEYS, KEY),
    scripts.read_log(KEYS, KEY, 1, 0),
    scripts.find_answers(KEYS, []),
    scripts.put_answers(KEYS, [], nonce=b"n"),
    scripts.drop_answer(KEYS, KEY, 7),
    scripts.flush_answers(KEYS, 1, b"n"),
    put_similar(KEYS, b"n", b"r", ttl_ms=1, most=1),
    find_similar(KEYS, KEY),
    drop_similar(KEYS, b"n"),
    log_changes([], b"n"),
    read_changes(Cursor()),
    read_epoch(b"n"),
    share_hints("0" * 32, []),
    announce_node("a:1", "0" * 32, 500, b"x"),
    withdraw_node("a:1", "0" * 32),
    list_nodes(),
]


def highest(text: str, table: str) -> int:
    return max((int(number) for number in re.findall(rf"{table}\[(\d+)\]", text)), default=0)


def test_every_file_has_a_call() -> None:
    assert {call.script for call in CALLS} == set(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_first_line_says_the_unit_of_time(name: str) -> None:
    assert re.match(r"-- Times in milliseconds[,.]", TEXTS[name])


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_script_is_written_with_stands_in_it(name: str) -> None:
    assert "-- with" not in TEXTS[name]


@pytest.mark.parametrize("name", TEXTS)
def test_keys_are_never_made_in_the_script(name: str) -> None:
    for arguments in re.findall(r"\bcall\(\s*'(?!TIME|PUBLISH)[A-Z]+', ([^)]*)", TEXTS[name]):
        if tables := re.match(r"unpack\((?!KEYS)(\w+)", arguments):
            made = re.findall(rf"\b{tables[1]}(?:\[.*?\])? = \{{?([^}}\n]*)", TEXTS[name])
            assert made
            assert all(re.match(r"(KEYS\[.*?\](, |;|$| end))*$", one) for one in made), made
        else:
            assert re.match(r"(unpack\()?(KEYS\b|\w*key\b)", arguments), arguments


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_called_a_key_was_declared_as_one(name: str) -> None:
    made = re.findall(r"local (?:\w*key\b)[^=\n]*= (?!KEYS\[)(.*)", TEXTS[name])
    passed = re.findall(r"^local function (\w+)\([^)]*key", TEXTS[name], re.MULTILINE)
    for function in passed:
        calls = re.findall(rf"(?<!function ){function}\((.*)", TEXTS[name])
        made += [call for call in calls if not re.match(r"KEYS\[|\w*key\b", call)]
    assert not made


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_is_used_that_redis_6_2_lacks(name: str) -> None:
    assert not re.search(r"#!lua|FCALL|'EXPIRE|'(NX|GT|LT)'|HEXPIRE|LMPOP|SINTERCARD|SPUBLISH", TEXTS[name])


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.script)
def test_call_has_the_keys_and_arguments_of_its_script(call: ScriptCall) -> None:
    text = TEXTS[call.script]
    assert (len(call.keys), len(call.args)) == (highest(text, "KEYS"), highest(text, "ARGV"))


def test_renewal_names_lease_and_log_of_each_lease() -> None:
    call = scripts.renew(KEYS, ["r", "s"], [(KEY, 7), (KEY, 8)], reservation_ms=2, lease_ms=1)
    assert call.keys[2:] == (KEYS.lease(KEY), KEYS.log(KEY, 7), KEYS.lease(KEY), KEYS.log(KEY, 8))
    assert call.args == (2, 1, 2, 7, 8, "r", "s")


def test_request_without_a_cache_key_names_no_lease() -> None:
    call = scripts.admit(KEYS, Limits(), [Admit("r", b"", 1)], lease_ms=1)
    assert call.keys[5:] == (KEYS.request("r"), KEYS.request("r"))


def test_what_is_asked_of_one_script_is_named_in_its_order() -> None:
    settlements = [Settlement("a", 1, {"x": 2}), Settlement("b", 3)]
    call = scripts.conclude(KEYS, Limits(), settlements, [Ending(KEY, 7, is_complete=True)])
    assert call.keys[4:] == (KEYS.request("a"), KEYS.request("b"), KEYS.lease(KEY))
    assert call.args[5:] == (2, 1, "x", 2, 1, "2", 3, "", 7, "told")


def test_the_end_of_what_is_followed_names_its_log_and_its_channel() -> None:
    call = scripts.end(KEYS, [(Ending(KEY, 7, is_complete=True, is_stored=True), b"z")], max_backlog_bytes=9)
    assert call.keys == (KEYS.lease(KEY), KEYS.log(KEY, 7))
    assert call.args[3:] == (7, "stored", b"z", KEYS.channel(KEY))


def test_a_script_can_take_the_id_from_the_name_of_a_request() -> None:
    assert KEYS.request("some-id")[KEYS.id_at - 1 :] == "some-id"


def test_counters_of_each_settlement_are_written_in_the_order_of_their_names() -> None:
    settlements = [Settlement("r1", 5, {"b": 7, "a": 2**64 - 1}), Settlement("r2", 0), Settlement("r3", 1, {"c": 10})]
    assert [*scripts.conclude(KEYS, Limits(), settlements).args[-6:]] == [5, f"7 {2**64 - 1} 0", 0, "", 1, "0 0 10"]


@pytest.mark.parametrize("values", [[], ["a"], ["a", "a", "a"], ["b", "a", "b", "c", "a", "b"]])
def test_each_is_counted_in_the_order_in_which_it_comes_first(values: list[str]) -> None:
    counts = scripts.count_each(values)
    assert list(counts.items()) == [(value, values.count(value)) for value in dict.fromkeys(values)]
