"""Whether a retrieval is worth starting before admission."""

import pytest

from ssop_router.core.ahead import AheadJudge


def judge(*needed: bool, admission_ms: float = 2, retrieval_ms: float = 15) -> AheadJudge:
    one = AheadJudge("auto")
    for is_needed in needed:
        one.record("acme", is_needed=is_needed, admission_ms=admission_ms, retrieval_ms=retrieval_ms)
    return one


def test_unknown_tenant_starts() -> None:
    assert AheadJudge("auto").is_worth("acme")


def test_tenant_whose_answers_are_mostly_stored_waits() -> None:
    assert not judge(*[False] * 20).is_worth("acme")


def test_tenant_comes_back() -> None:
    assert judge(*[False] * 20, *[True] * 20).is_worth("acme")


def test_slow_admission_is_worth_more_waste() -> None:
    mixed = [True, False] * 20
    assert not judge(*mixed, admission_ms=2).is_worth("acme")
    assert judge(*mixed, admission_ms=15).is_worth("acme")


def test_tenants_are_judged_apart() -> None:
    assert judge(*[False] * 20).is_worth("other")


def test_tenants_are_bounded() -> None:
    one = AheadJudge("auto")
    for n in range(3_000):
        one.record(f"t{n}", is_needed=False, admission_ms=1)
    assert len(one._tenants) == 1_000


@pytest.mark.parametrize(("mode", "expected"), [("always", True), ("never", False)])
def test_mode_decides_alone(mode: str, expected: bool) -> None:
    one = AheadJudge(mode)  # type: ignore[arg-type]
    for _ in range(20):
        one.record("acme", is_needed=not expected, admission_ms=1, retrieval_ms=1)
    assert one.is_worth("acme") is expected


def test_rule_that_wants_it_starts_where_passages_are_mostly_needed() -> None:
    mixed = judge(*[True, False, True] * 10, admission_ms=0.1, retrieval_ms=100)
    assert not mixed.is_worth("acme")
    assert mixed.is_worth("acme", is_wanted=True)
    assert not judge(*[False] * 20).is_worth("acme", is_wanted=True)


def test_rule_does_not_overrule_never() -> None:
    assert not AheadJudge("never").is_worth("acme", is_wanted=True)
