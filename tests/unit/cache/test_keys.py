"""Names of keys: one slot for each tenant, versions where an answer is meant, no texts."""

import re

import pytest

from ssop_cache.core.keys import Layout, TenantKeys

KEY = b"\1" * 32
KEYS = Layout(1, "0.1.0").of_tenant("acme")


def all_names(keys: TenantKeys) -> list[str]:
    plain = [keys.rate, keys.used, keys.reserved, keys.expiry, keys.fence, keys.request("r1")]
    return [*plain, keys.lease(KEY), keys.log(KEY, 7), keys.answer(KEY), keys.channel(KEY)]


def hash_tag(name: str) -> str:
    """What a cluster hashes: the text between the first `{` and the first `}` after it."""
    found = re.search(r"\{([^}]+)\}", name)
    assert found is not None
    return found[1]


def test_all_keys_of_a_tenant_share_a_slot() -> None:
    assert len({hash_tag(name) for name in all_names(KEYS)}) == 1


@pytest.mark.parametrize("tenant", ["a}b", "{}", "", "\u5ba2\u6237", "a:b"])
def test_any_tenant_makes_a_usable_hash_tag(tenant: str) -> None:
    assert re.fullmatch("[0-9a-f]{32}", hash_tag(Layout(1, "1").of_tenant(tenant).rate))


def test_names_do_not_show_the_tenant() -> None:
    assert not [name for name in all_names(KEYS) if "acme" in name]


def test_no_two_keys_are_the_same() -> None:
    assert len(set(all_names(KEYS))) == len(all_names(KEYS))


@pytest.mark.parametrize("layout", [Layout(2, "0.1.0"), Layout(1, "0.2.0")])
def test_versions_part_answers_leases_and_logs(layout: Layout) -> None:
    other = layout.of_tenant("acme")
    assert not {KEYS.answer(KEY), KEYS.lease(KEY), KEYS.log(KEY, 7)} & set(all_names(other))


def test_versions_do_not_part_budgets() -> None:
    other = Layout(2, "0.2.0").of_tenant("acme")
    assert (other.used, other.reserved, other.rate) == (KEYS.used, KEYS.reserved, KEYS.rate)


def test_generations_of_an_answer_have_logs_of_their_own() -> None:
    assert KEYS.log(KEY, 1) != KEYS.log(KEY, 2)
