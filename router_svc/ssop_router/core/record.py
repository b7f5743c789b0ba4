"""A decision and its outcome as a line of a log, and back. Pure.

A line holds what another policy needs to decide anew: lengths, scores, signals, and which of the word lists in force
were found; never a text, unless the operator asks for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.complexity import Complexity
from ssop_router.core.policy import TIER_OF_WORD, parse_policy
from ssop_router.core.request import Features
from ssop_router.core.rules import Rule, make_excerpt
from ssop_router.core.score import TierSignals

VERSION: Final = 1


class RecordError(ValueError):
    """A line that is no record; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class TierRecord:
    """A tier as the decision saw it. `loss` names why no node of it could serve; empty where one could."""

    signals: TierSignals
    loss: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """How a request went. `served_by` is "" where no node generated: a replay, or a failure before."""

    outcome: str
    served_by: str
    cache: str
    degraded_level: int
    first_field_ms: int
    total_ms: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Record:
    """One line. `words` says for each word list that was in force, by its digest, whether it was found."""

    features: Features
    conversation: str
    complexity: Complexity
    words: Mapping[str, bool]
    tiers: Mapping[Tier.ValueType, TierRecord]
    tier: Tier.ValueType
    tier_reason: TierReason.ValueType
    result: Result
    has_text: bool = False
    at_ms: int = 0


def find_words(features: Features, rules: Sequence[Rule]) -> dict[str, bool]:
    """Which of the rules' word lists are in the user's text, whatever their other conditions."""
    text = make_excerpt(features.user_text)
    return {rule.words.digest: rule.words.is_in(text) for rule in rules if rule.words is not None}


def describe_features(features: Features, conversation: str, *, with_text: bool) -> dict[str, Any]:
    """The request's part of a line. `conversation` is any name that stands for the conversation."""
    found: dict[str, Any] = {
        "chars": features.user_chars,
        "prompt_bytes": features.prompt_bytes,
        "documents": features.documents,
        "max_output_tokens": features.max_output_tokens,
        "capabilities": sorted(features.capabilities),
        "logprobs": features.needs_logprobs,
        "schema": features.has_schema,
        "temperature": features.temperature,
        "policy": features.policy.text,
        "model": features.model,
        "scopes": sorted(features.scopes),
        "conversation": conversation,
    }
    if with_text:
        found["text"] = features.user_text
    return found


def describe_tier(signals: TierSignals, loss: str) -> dict[str, Any]:
    """A tier's part of a line."""
    numbers = {
        name: round(value, 4) if isinstance(value, float) else value for name, value in signals._asdict().items()
    }
    return {**numbers, "loss": loss}


def describe_complexity(complexity: Complexity) -> dict[str, Any]:
    """The classifier's part of a line."""
    found: dict[str, Any] = {"score": None if complexity.score is None else round(complexity.score, 5)}
    return {**found, "spread": round(complexity.spread, 5), "abstention": complexity.abstention}


def read_record(line: Mapping[str, Any]) -> Record:
    """A record from the JSON object of a line. Raises RecordError."""
    if line.get("v") != VERSION:
        raise RecordError(f"is of version {line.get('v')!r}, this program reads {VERSION}")
    try:
        return _read(line)
    except (KeyError, TypeError, ValueError, AttributeError, MeshError) as error:
        raise RecordError(f"is damaged ({type(error).__name__}: {error})") from error


def _read(line: Mapping[str, Any]) -> Record:
    asked, said, result = line["request"], line["complexity"], line["result"]
    text = asked.get("text")
    features = Features(
        scopes=frozenset(map(str, asked["scopes"])),
        policy=parse_policy(asked["policy"]),
        model=str(asked["model"]),
        user_text=str(text) if text is not None else "",
        documents=int(asked["documents"]),
        prompt_bytes=int(asked["prompt_bytes"]),
        max_output_tokens=int(asked["max_output_tokens"]),
        capabilities=frozenset(map(str, asked["capabilities"])),
        needs_logprobs=bool(asked["logprobs"]),
        has_schema=bool(asked["schema"]),
        temperature=float(asked["temperature"]),
        text_chars=int(asked["chars"]),
    )
    score = said["score"]
    return Record(
        features=features,
        conversation=str(asked["conversation"]),
        complexity=Complexity(
            float(score) if score is not None else None, float(said["spread"]), str(said["abstention"])
        ),
        words={str(digest): bool(is_found) for digest, is_found in line["words"].items()},
        tiers={TIER_OF_WORD[word]: _read_tier(tier) for word, tier in line["tiers"].items()},
        tier=TIER_OF_WORD[line["decision"]["tier"]],
        tier_reason=TierReason.Value(f"TIER_REASON_{line['decision']['reason'].upper()}"),
        result=Result(
            outcome=str(result["outcome"]),
            served_by=str(result["served_by"]),
            cache=str(result["cache"]),
            degraded_level=int(result["degraded_level"]),
            first_field_ms=int(result["first_field_ms"]),
            total_ms=int(result["total_ms"]),
            input_tokens=int(result["input_tokens"]),
            output_tokens=int(result["output_tokens"]),
        ),
        has_text=text is not None,
        at_ms=int(line["at_ms"]),
    )


def _read_tier(tier: Mapping[str, Any]) -> TierRecord:
    values = {name: tier[name] for name in TierSignals._fields}
    for name in ("headroom", "headroom_spread", "success", "success_spread"):
        values[name] = float(values[name])
    return TierRecord(TierSignals(**values), str(tier["loss"]))
