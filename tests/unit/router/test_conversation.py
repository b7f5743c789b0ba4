"""Conversations keep their tier."""

import random
from itertools import pairwise

import pytest

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_router.conversations import Conversations
from ssop_router.core.complexity import Complexity
from ssop_router.core.conversation import Conversation, advance
from ssop_router.core.decision import Decision, DecisionSettings, Features, decide
from ssop_router.core.policy import parse_policy
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.settings import RouterSettings

LITE, FULL = Tier.TIER_LITE, Tier.TIER_FULL
ALL = frozenset({"lite", "full"})
SETTINGS: DecisionSettings = RouterSettings.model_validate({"keys_file": "k", "nodes": ["n"]}).decision(0.5)


def model(tier: Tier.ValueType, context_tokens: int = 1000) -> ModelView:
    return ModelView("m", ModelState.MODEL_STATE_READY, frozenset({tier}), context_tokens, 4)


def mesh(lite_context: int = 1000) -> Snapshot:
    return Snapshot(
        (NodeView("f", "f", (model(FULL),), 0, True), NodeView("l", "l", (model(LITE, lite_context),), 0, True))
    )


class Talk:
    """A conversation, turn by turn; each turn's complexity is what a classifier would say."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot or mesh()
        self.conversations = Conversations(10, 1_000_000)
        self.now_ms = 0

    def say(self, text: str, complexity: float | None = None, policy: str = "", prompt_bytes: int = 0) -> Decision:
        self.now_ms += 10
        before = self.conversations.find("t", "c", self.now_ms)
        features = Features(
            scopes=ALL,
            policy=parse_policy(policy),
            user_text=text,
            prompt_bytes=prompt_bytes,
            conversation_tier=before.tier if before else Tier.TIER_UNSPECIFIED,
            conversation_switches=before.switches if before else 0,
        )
        found = Complexity(complexity) if complexity is not None else Complexity(abstention="off")
        decision = decide(features, self.snapshot, SETTINGS, 0, random.Random(1), score_text=lambda _: found)
        self.conversations.advance("t", "c", decision, self.now_ms)
        return decision


@pytest.mark.parametrize("follow_up", ["Translate it", "commit it", "谢谢，翻译一下", "ok"])
def test_short_follow_up_to_a_hard_question_stays(follow_up: str) -> None:
    talk = Talk()
    assert talk.say("prove that there are infinitely many primes", 0.9).tier == FULL
    decision = talk.say(follow_up, 0.05)
    assert (decision.tier, decision.tier_reason) == (FULL, TierReason.TIER_REASON_CONVERSATION_PIN)


def test_long_and_plain_text_moves_down_once() -> None:
    talk = Talk()
    talk.say("why", 0.9)
    assert talk.say("plain words " * 40, 0.1).tier == LITE
    assert talk.say("prove it", 0.99).tier == LITE


def test_hard_question_moves_up_once() -> None:
    talk = Talk()
    assert talk.say("hello", 0.1).tier == LITE
    assert talk.say("what about this", 0.9).tier == FULL
    assert talk.say("plain words " * 40, 0.0).tier == FULL


def test_rule_moves_up() -> None:
    talk = Talk()
    talk.say("hello", 0.1)
    decision = talk.say("prove it", None)
    assert (decision.tier, decision.tier_reason) == (FULL, TierReason.TIER_REASON_MULTI_HOP)


def test_score_just_above_the_threshold_moves_nothing() -> None:
    talk = Talk()
    talk.say("hello", 0.1)
    assert talk.say("what about this", 0.55).tier == LITE


def test_twenty_turns_switch_at_most_once() -> None:
    talk, rng = Talk(), random.Random(7)
    tiers = [talk.say("words " * rng.choice([1, 60]), rng.random()).tier for _ in range(20)]
    assert sum(one != other for one, other in pairwise(tiers)) <= 1


def test_content_that_no_longer_fits_moves_whatever_was_before() -> None:
    talk = Talk(mesh(lite_context=100))
    assert talk.say("hello", 0.1).tier == LITE
    decision = talk.say("hello", 0.1, prompt_bytes=4000)
    assert (decision.tier, decision.tier_reason) == (FULL, TierReason.TIER_REASON_CONTEXT_FIT)


def test_forced_tier_is_for_one_request() -> None:
    talk = Talk()
    talk.say("hello", 0.1)
    assert talk.say("hello", 0.1, policy="full").tier == FULL
    assert talk.say("hello", 0.1).tier == LITE


def test_conversation_that_begins_forced_stays() -> None:
    talk = Talk()
    talk.say("hello", 0.1, policy="full")
    assert talk.say("hello", 0.1).tier == FULL


def test_node_that_is_away_for_a_moment_moves_no_conversation() -> None:
    before = Conversation(FULL, 0, 0)
    assert advance(before, LITE, TierReason.TIER_REASON_OTHER_UNAVAILABLE, 5) == Conversation(FULL, 0, 5)
    assert advance(None, LITE, TierReason.TIER_REASON_OTHER_UNAVAILABLE, 5) is None


def test_demand_is_no_change_of_mind() -> None:
    after = advance(Conversation(LITE, 0, 0), FULL, TierReason.TIER_REASON_CONTEXT_FIT, 5)
    assert after == Conversation(FULL, 0, 5)


def test_conversations_end_and_are_bounded() -> None:
    conversations = Conversations(2, 100)
    decision = decide(Features(scopes=ALL), mesh(), SETTINGS, 0, random.Random(1))
    for name in ("a", "b", "c"):
        conversations.advance("t", name, decision, 0)
    assert conversations.find("t", "a", 50) is None
    assert conversations.find("t", "c", 50) is not None
    assert conversations.find("t", "c", 100) is None
    assert conversations.find("u", "c", 50) is None
