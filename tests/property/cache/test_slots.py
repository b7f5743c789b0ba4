"""All keys of a script share a slot of a cluster, whatever tenants and requests are called; no two tenants a key."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from helpers.script_calls import Admit, Ending
from ssop_cache.core import changes, flushes, hints, neighbours, registry, scripts
from ssop_cache.core.asked import Settlement
from ssop_cache.core.changes import Change, Cursor
from ssop_cache.core.keys import Layout, TenantKeys
from ssop_cache.core.scripts import Limits, ScriptCall
from ssop_cache.store import load_scripts

NAMES = st.text(max_size=40) | st.text(alphabet="{}ab:", max_size=12)
BUILDERS: list[Callable[..., ScriptCall]] = [
    builder
    for module in (scripts, changes, flushes, hints, neighbours, registry)
    for _, builder in inspect.getmembers(module, inspect.isroutine)
    if getattr(builder, "__annotations__", {}).get("return") in (ScriptCall, "ScriptCall")
]
PLAIN: dict[type, Any] = {int: 7, bytes: b"\1", str: "x", bool: True, float: 1.0}


def build(builder: Callable[..., ScriptCall], keys: TenantKeys, request_id: str, cache_key: bytes) -> ScriptCall:
    """A call with these names, and with anything for the rest."""
    # A compiled module has no name for a class that it knows as a type.
    hints = get_type_hints(builder, localns={"TenantKeys": TenantKeys})
    known: dict[str, Any] = {
        "keys": keys,
        "request_id": request_id,
        "cache_key": cache_key,
        "limits": Limits(),
        "asked": [Admit(request_id, cache_key, 1)],
        "settlements": [Settlement(request_id, 1)],
        "endings": [Ending(cache_key, 7)],
        "followed": [(Ending(cache_key, 7), b"x")],
        "wanted": [(cache_key, 7)],
        "answers": [(cache_key, 7, b"x", 1)],
        "changes": [Change(keys.tag, cache_key, 1)],
        "cursor": Cursor(),
        "hints": [],
        "request_ids": [request_id],
        "leases": [(cache_key, 7)],
    }
    given_ = {
        name: known[name] if name in known else PLAIN[hints[name]]
        for name, parameter in inspect.signature(builder).parameters.items()
        if parameter.default is inspect.Parameter.empty or name in known
    }
    return builder(**given_)


@given(tenant=NAMES, request_id=NAMES, cache_key=st.binary(min_size=32, max_size=32))
@example(tenant="{a}", request_id="}{", cache_key=b"{}" * 16)
@example(tenant="{}", request_id="{x}", cache_key=b"\0" * 32)
def test_keys_of_a_script_share_a_slot(tenant: str, request_id: str, cache_key: bytes) -> None:
    keys = Layout(1, "{v}").of_tenant(tenant)
    for builder in BUILDERS:
        call = build(builder, keys, request_id, cache_key)
        assert len({key_slot(key.encode()) for key in call.keys}) == 1, call.script
        assert call.keys, call.script


def test_every_script_is_looked_at() -> None:
    keys = Layout(1, "v").of_tenant("t")
    assert {build(builder, keys, "r", b"\0" * 32).script for builder in BUILDERS} == set(load_scripts())


@given(one=NAMES, other=NAMES, request_id=NAMES, cache_key=st.binary(min_size=32, max_size=32))
@example(one="a", other="a}", request_id="x", cache_key=b"\0" * 32)
def test_two_tenants_share_no_key(one: str, other: str, request_id: str, cache_key: bytes) -> None:
    layout = Layout(1, "v")
    named = [
        {
            key
            for builder in BUILDERS
            if "keys" in inspect.signature(builder).parameters
            for key in build(builder, layout.of_tenant(tenant), request_id, cache_key).keys
        }
        for tenant in (one, other)
    ]
    assert (named[0] == named[1]) == (one == other)
    if one != other:
        assert not named[0] & named[1]
