import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.errors import MeshError
from ssop_router.core.policy import Policy, parse_policy


@pytest.mark.parametrize("text", ["", "auto", " AUTO ", ",", "auto,auto"])
def test_no_word_is_auto(text: str) -> None:
    assert parse_policy(text) == Policy()


def test_words_combine_in_any_order() -> None:
    policy = parse_policy("No_Rag , lite,no_cache")
    assert policy.tier == Tier.TIER_LITE
    assert policy.is_rag_off
    assert policy.is_cache_off
    assert policy.text == "lite,no_cache,no_rag"


@pytest.mark.parametrize(
    "text",
    [
        "lite,full",
        "auto,lite",
        "auto,full",
        "cache_only,no_cache",
        "cascade,lite",
        "cascade,full",
        "cascade,cache_only",
        "fast",
        "lite;full",
        "x" * 200,
    ],
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(MeshError) as caught:
        parse_policy(text)
    assert caught.value.reason == ErrorReason.ERROR_REASON_POLICY_INVALID


def test_error_does_not_repeat_what_the_caller_wrote() -> None:
    with pytest.raises(MeshError) as caught:
        parse_policy("hunter2")
    assert "hunter2" not in caught.value.message
