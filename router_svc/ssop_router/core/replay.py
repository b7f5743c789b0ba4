"""Decides the requests of a log anew, under another policy, and says what would have changed. Pure.

What a request would have cost and taken on the other tier is an estimate: its own tokens at that tier's price, and that
tier's typical times as the log has them. Stored answers stay stored answers.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.choice import add_up
from ssop_router.core.complexity import Complexity
from ssop_router.core.conversation import Conversation, advance
from ssop_router.core.decision import TIERS, allowed_tiers, prefer
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.core.record import Record
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.rules import Rule, make_excerpt
from ssop_router.core.score import Score, TierSignals

ScoreRecord = Callable[[Record], Complexity]


class Price(NamedTuple):
    """Price of one token of the prompt, and of the answer."""

    input: float
    output: float


class Choice(NamedTuple):
    """What a policy would have done with a request; the tier is TIER_UNSPECIFIED where it would refuse it."""

    tier: Tier.ValueType
    reason: TierReason.ValueType


@dataclass(slots=True)
class _Recorded:
    """A request of a log as a scene. Words that the log says nothing about count as absent, and are noted."""

    features: Features
    settings: DecisionSettings
    record: Record
    complexity: Complexity
    is_undecidable: bool = False

    def find_rule(self) -> Rule | None:
        """See Scene."""
        features, text = self.features, make_excerpt(self.features.user_text)
        for rule in self.settings.rules:
            if not rule.is_in_bounds(features.user_chars, features.documents):
                continue
            if rule.words is None:
                return rule
            is_found = rule.words.is_in(text) if self.record.has_text else self.record.words.get(rule.words.digest)
            if is_found is None:
                self.is_undecidable = True
            elif is_found:
                return rule
        return None

    def weigh(self) -> tuple[Complexity, Score | None]:
        """See Scene."""
        lite, full = (self.record.tiers[tier].signals if tier in self.record.tiers else TierSignals() for tier in TIERS)
        pinned = self.features.conversation_tier
        return self.complexity, add_up(self.complexity, lite, full, self.settings.score, pinned)


class Replayer:
    """Decides records in the order of the log; keeps the conversations as this policy would have led them."""

    def __init__(self, settings: DecisionSettings, score: ScoreRecord | None = None) -> None:
        self._settings = settings
        self._score = score
        self._conversations: dict[str, Conversation] = {}
        self.undecidable = 0

    def choose(self, record: Record) -> Choice:
        """What the policy would have done."""
        before = self._conversations.get(record.conversation) if record.conversation else None
        features = record.features
        if before is not None:
            features = features._replace(conversation_tier=before.tier, conversation_switches=before.switches)
        complexity = self._score(record) if self._score is not None else record.complexity
        scene = _Recorded(features, self._settings, record, complexity)
        try:
            choice = _decide(scene, record)
        except MeshError:
            return Choice(Tier.TIER_UNSPECIFIED, TierReason.TIER_REASON_UNSPECIFIED)
        self.undecidable += scene.is_undecidable
        if record.conversation:
            after = advance(before, choice.tier, choice.reason, record.at_ms)
            if after is not None:
                self._conversations[record.conversation] = after
        return choice


def _decide(scene: _Recorded, record: Record) -> Choice:
    allowed = allowed_tiers(scene.features, scene.settings)
    if len(allowed) == 1:
        return Choice(*next(iter(allowed.items())))
    wish = prefer(scene)
    loss = record.tiers[wish.tier].loss if wish.tier in record.tiers else ""
    if loss:
        for other in allowed:
            if other != wish.tier and not (record.tiers[other].loss if other in record.tiers else ""):
                return Choice(other, TierReason.Value(f"TIER_REASON_{loss.upper()}"))
    return Choice(wish.tier, wish.reason)


class _Times(NamedTuple):
    """A tier as the log has it: median time to the first field, and for each later token."""

    first_field_ms: float
    token_ms: float


def _times(records: Iterable[Record]) -> dict[str, _Times]:
    found: dict[str, _Times] = {}
    served = [r.result for r in records if r.result.served_by and r.result.first_field_ms and r.result.output_tokens]
    for word in WORD_OF_TIER.values():
        results = [result for result in served if result.served_by == word]
        if results:
            found[word] = _Times(
                statistics.median(result.first_field_ms for result in results),
                statistics.median(
                    max(0, result.total_ms - result.first_field_ms) / result.output_tokens for result in results
                ),
            )
    return found


@dataclass(frozen=True, slots=True)
class Tally:
    """What a log costs under one policy. Times are of generated answers; `untimed` had no estimate."""

    requests: int
    tiers: Mapping[str, int]
    reasons: Mapping[str, int]
    cost: float
    first_field_ms: Sequence[float]
    total_ms: Sequence[float]
    untimed: int = 0
    refused: int = 0

    @property
    def full_share(self) -> float:
        """Part of the requests that go to the full tier."""
        decided = sum(self.tiers.values())
        return self.tiers.get("full", 0) / decided if decided else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A log as it was, and as it would have been."""

    before: Tally
    after: Tally
    to_lite: int
    to_full: int
    undecidable: int


def compare(
    records: Sequence[Record],
    settings: DecisionSettings,
    prices: Mapping[str, Price],
    score: ScoreRecord | None = None,
) -> Comparison:
    """Replay a whole log. `score` scores records anew; else the log's own scores are taken."""
    replayer = Replayer(settings, score)
    choices = [replayer.choose(record) for record in records]
    times = _times(records)
    before = _tally(records, [Choice(record.tier, record.tier_reason) for record in records], prices, times)
    after = _tally(records, choices, prices, times)
    moves = Counter(choice.tier for record, choice in zip(records, choices, strict=True) if choice.tier != record.tier)
    return Comparison(before, after, moves[Tier.TIER_LITE], moves[Tier.TIER_FULL], replayer.undecidable)


def sweep(
    records: Sequence[Record],
    settings: DecisionSettings,
    prices: Mapping[str, Price],
    thresholds: Sequence[float],
    score: ScoreRecord | None = None,
) -> list[tuple[float, Tally]]:
    """The same log under one threshold after another."""
    times = _times(records)
    found = []
    for threshold in thresholds:
        replayer = Replayer(replace(settings, score=replace(settings.score, threshold=threshold)), score)
        found.append((threshold, _tally(records, [replayer.choose(record) for record in records], prices, times)))
    return found


def _tally(
    records: Sequence[Record],
    choices: Sequence[Choice],
    prices: Mapping[str, Price],
    times: Mapping[str, _Times],
) -> Tally:
    tiers: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    cost = 0.0
    first_field_ms: list[float] = []
    total_ms: list[float] = []
    untimed = refused = 0
    for record, choice in zip(records, choices, strict=True):
        if not choice.tier:
            refused += 1
            continue
        tiers[WORD_OF_TIER[choice.tier]] += 1
        reasons[TierReason.Name(choice.reason).removeprefix("TIER_REASON_").lower()] += 1
        result = record.result
        if not result.served_by:
            continue
        is_same = choice.tier == record.tier
        word = result.served_by if is_same else WORD_OF_TIER[choice.tier]
        price = prices.get(word, Price(0.0, 0.0))
        cost += result.input_tokens * price.input + result.output_tokens * price.output
        if is_same:
            first_field_ms.append(result.first_field_ms)
            total_ms.append(result.total_ms)
        elif word in times:
            first_field_ms.append(times[word].first_field_ms)
            total_ms.append(times[word].first_field_ms + times[word].token_ms * result.output_tokens)
        else:
            untimed += 1
    return Tally(len(records), tiers, reasons, cost, first_field_ms, total_ms, untimed, refused)
