"""The part of section `router` that is policy: what `ssop route replay` can try on a log.

Everything here only chooses; where things are and how long they may take is in `settings`.
"""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field, field_validator

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_chassis.settings import Settings
from ssop_router.core.canary import Canary
from ssop_router.core.policy import TIER_OF_WORD
from ssop_router.core.request import DecisionSettings
from ssop_router.core.rules import GAP, MAX_GAPS, Rule, compile_words
from ssop_router.core.score import ScoreSettings
from ssop_router.core.success import CacheRule

TierWord = Literal["lite", "full"]
RuleReason = Literal["short_instruction", "multi_hop", "many_documents", "rule"]
PACKAGED: Final = "packaged"
"""Stands in `classifier_file` for the one that ships."""

_REASONS: Final[Mapping[str, TierReason.ValueType]] = {
    "short_instruction": TierReason.TIER_REASON_SHORT_INSTRUCTION,
    "multi_hop": TierReason.TIER_REASON_MULTI_HOP,
    "many_documents": TierReason.TIER_REASON_MANY_DOCUMENTS,
    "rule": TierReason.TIER_REASON_RULE,
}
_MULTI_HOP_WORDS: Final = (
    "step by step", "explain why", "compare", "contrast", "trade-off", "trade-offs", "pros and cons", "prove",
    "derive", "root cause", "what would happen if", "first ... then", "both ... and", "if ... then", "analyze",
    "analyse", "逐步", "一步一步", "一步步", "推导", "证明", "比较", "对比", "权衡", "利弊", "优缺点", "根本原因",
    "因果", "分析", "先...再", "如果...那么", "为什么...以及", "because ... therefore", "although ... but",
    "因为...所以", "由于...因此", "虽然...但是", "虽然...但", "尽管...但",
)  # fmt: skip
_INSTRUCTION_WORDS: Final = (
    "translate", "summarize", "summarise", "extract", "classify", "list", "define", "rewrite", "rephrase", "convert",
    "spell", "format", "label", "tag", "correct", "翻译", "总结", "概括", "提取", "抽取", "分类", "列出", "改写",
    "转换", "纠正", "标注", "判断",
)  # fmt: skip


class RuleSettings(Settings):
    """Prefers a tier where every condition that is given holds."""

    name: str = Field("", max_length=64, description="What decisions call the rule; else its reason.")
    tier: TierWord = Field(description="The tier that the rule prefers.")
    reason: RuleReason = Field("rule", description="The reason that decisions carry.")
    words: list[str] = Field(default=[], description="Any of these in the user's text; `...` is a gap.")
    max_chars: int | None = Field(default=None, ge=0, description="Longest user text, in characters.")
    min_documents: int | None = Field(default=None, ge=1, description="Fewest attached documents.")
    prefetch: bool = Field(False, description="Retrieval starts before the request is admitted.")

    @field_validator("words")
    @classmethod
    def _check_words(cls, value: list[str]) -> list[str]:
        for word in value:
            pieces = word.split(GAP)
            if not any(piece.strip() for piece in pieces):
                raise ValueError("a word needs letters")
            if len(pieces) > MAX_GAPS + 1:
                raise ValueError(f"a word has at most {MAX_GAPS} gaps: each multiplies what a search may cost")
        return value

    def rule(self) -> Rule:
        """The rule, compiled."""
        return Rule(
            TIER_OF_WORD[self.tier],
            _REASONS[self.reason],
            compile_words(self.words) if self.words else None,
            self.max_chars,
            self.min_documents,
            self.name or self.reason,
            self.prefetch,
        )


def _default_rules() -> list[RuleSettings]:
    return [
        RuleSettings(tier="full", reason="many_documents", min_documents=2, prefetch=True),
        RuleSettings(tier="full", reason="multi_hop", words=list(_MULTI_HOP_WORDS), prefetch=True),
        RuleSettings(tier="lite", reason="short_instruction", words=list(_INSTRUCTION_WORDS), max_chars=199),
    ]


class ScoreTable(Settings):
    """How the signals add up, and from where the full tier is meant."""

    threshold: float | None = Field(
        None, ge=0, le=1, description="Score from which the full tier is meant; absent: as `full_share` says."
    )
    full_share: float = Field(
        0.5, ge=0, le=1, description="Part of the requests that the classifier's calibration sends to the full tier."
    )
    hysteresis: float = Field(0.1, ge=0, le=1, description="Shift of the threshold away from a conversation's tier.")
    headroom_weight: float = Field(0.1, ge=0, le=1, description="How far head-room can move the score.")
    success_weight: float = Field(0.2, ge=0, le=1, description="How far recent success can move the score.")
    doubt_weight: float = Field(0.0, ge=0, le=1, description="Part of the classifier's own spread that counts.")


class CacheRuleTable(Settings):
    """When stored answers go first; `windows` 0: never."""

    windows: int = Field(3, ge=0, le=10, description="Windows in a row that fail too much.")
    window_ms: int = Field(10_000, ge=100, description="Length of a window.")
    min_outcomes: int = Field(20, ge=1, description="Fewest outcomes of a window that says something.")
    max_failure_ratio: float = Field(0.15, ge=0, le=1, description="Failures above this part are too many.")


class PriceTable(Settings):
    """Price of a million tokens, in any currency."""

    input: float = Field(ge=0, description="Of the prompt.")
    output: float = Field(ge=0, description="Of the answer.")


def _default_prices() -> dict[TierWord, PriceTable]:
    return {"lite": PriceTable(input=1, output=4), "full": PriceTable(input=10, output=40)}


class CanaryTable(Settings):
    """A model on trial."""

    tier: TierWord = Field(description="The tier that it is to serve.")
    model: str = Field(min_length=1, description="The model, as its nodes name it.")
    share: float = Field(0.0, ge=0, le=1, description="Part of the tier's requests that it answers.")
    shadow: float = Field(
        0.0, ge=0, le=1, description="Part of the other requests that are copied to it; nobody sees those answers."
    )


class PolicySettings(Settings):
    """What a router prefers."""

    models: dict[str, Literal["lite", "full", "auto"]] = Field(
        default={"grok-3": "full", "grok-3-lite": "lite", "auto": "auto"},
        description="Model names that requests may use, and the tier that each stands for.",
    )
    default_tier: TierWord = Field("full", description="The tier where neither a rule nor the score speaks.")
    rules: list[RuleSettings] = Field(default_factory=_default_rules, description="The first that holds decides.")
    score: ScoreTable = Field(
        default_factory=ScoreTable,
        description="`threshold`, or `full_share`; `hysteresis`, and the weights of the signals.",
    )
    canaries: list[CanaryTable] = Field(
        default=[], description="Models on trial, one for each tier: `tier`, `model`, `share`, `shadow`."
    )
    cache_rule: CacheRuleTable = Field(
        default_factory=CacheRuleTable,
        description="`windows`, `window_ms`, `min_outcomes`, `max_failure_ratio`: when stored answers go first.",
    )
    classifier_file: str = Field(
        PACKAGED, description="The classifier's artefact; `packaged`: the one that ships; empty: none."
    )
    classifier_provider: Literal["cpu", "cuda"] = Field(
        "cpu", description="What runs the classifier; without CUDA the CPU does, which log, metric and `doctor` say."
    )
    classifier_timeout_us: int = Field(
        5_000, gt=0, description="A score that took longer is not used; three in a row, and none is asked for a second."
    )
    follow_up_chars: int = Field(200, ge=0, description="A shorter text never takes a conversation off the full tier.")
    conversation_ttl_ms: int = Field(1_800_000, gt=0, description="How long a silent conversation keeps its tier.")
    success_half_life_ms: int = Field(30_000, gt=0, description="Time in which an outcome loses half of its weight.")
    status_stale_ms: int = Field(5_000, gt=0, description="Age from which a node's status is not trusted.")
    low_memory_ratio: float = Field(0.02, ge=0, le=1, description="Share of free memory under which a node is avoided.")
    max_attempts: int = Field(5, ge=1, le=10, description="Nodes that one request may try.")
    prices: dict[TierWord, PriceTable] = Field(
        default_factory=_default_prices,
        description="By tier, `input` and `output`: price of a million tokens, for replays.",
    )

    @field_validator("canaries")
    @classmethod
    def _check_canaries(cls, value: list[CanaryTable]) -> list[CanaryTable]:
        if len({canary.tier for canary in value}) < len(value):
            raise ValueError("a tier has one canary at most")
        return value

    def decision(self, threshold: float | None = None) -> DecisionSettings:
        """The part that the decision core reads. `threshold` is that of the calibration, where there is one."""
        score = self.score
        chosen = score.threshold if score.threshold is not None else threshold
        return DecisionSettings(
            model_tiers={name: TIER_OF_WORD.get(tier, Tier.TIER_UNSPECIFIED) for name, tier in self.models.items()},
            default_tier=TIER_OF_WORD[self.default_tier],
            rules=tuple(rule.rule() for rule in self.rules),
            status_stale_ms=self.status_stale_ms,
            low_memory_ratio=self.low_memory_ratio,
            max_attempts=self.max_attempts,
            score=ScoreSettings(
                threshold=chosen if chosen is not None else 1 - score.full_share,
                hysteresis=score.hysteresis,
                headroom_weight=score.headroom_weight,
                success_weight=score.success_weight,
                doubt_weight=score.doubt_weight,
            ),
            follow_up_chars=self.follow_up_chars,
            canaries=tuple(
                Canary(TIER_OF_WORD[canary.tier], canary.model, canary.share, canary.shadow) for canary in self.canaries
            ),
        )

    def cache_first(self) -> CacheRule:
        """When stored answers go first."""
        rule = self.cache_rule
        return CacheRule(rule.windows, rule.window_ms, rule.min_outcomes, rule.max_failure_ratio)
