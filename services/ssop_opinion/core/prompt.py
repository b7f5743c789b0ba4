"""The conversation that asks for the analysis of a post: examples as turns, then the post with what is known of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ssop_opinion.core.wording import Language, as_data

LABELS: Final = ("negative", "neutral", "positive")
EVENTS: Final = ("complaint", "praise", "launch", "failure", "crisis", "news", "other")
_CLEARLY: Final = 3.0
"""So many times as likely as any other an event type must be to be said."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What the sentiment model says: probabilities of the three labels, and a valence from -1 to 1.

    `events` are the probabilities of EVENTS, or nothing from a model that knows of none.
    """

    negative: float
    neutral: float
    positive: float
    valence: float
    events: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        """The likeliest label."""
        if self.negative >= self.neutral:
            return "negative" if self.negative >= self.positive else "positive"
        return "neutral" if self.neutral >= self.positive else "positive"

    @property
    def score(self) -> int:
        """The valence from -5 to 5, on the label's side of 0."""
        score, label = round(self.valence * 5), self.label
        if label == "neutral":
            return max(-1, min(1, score))
        return max(1, score) if label == "positive" else min(-1, score)

    @property
    def event(self) -> str:
        """The event type that is clearly likelier than the others; empty where none is."""
        if not self.events:
            return ""
        second, best = sorted(self.events)[-2:]
        return EVENTS[self.events.index(best)] if best >= _CLEARLY * second else ""

    def probability_of(self, label: str) -> float:
        """Of one of LABELS; 0 for another."""
        chances: Mapping[str, float] = {
            "negative": self.negative, "neutral": self.neutral, "positive": self.positive,
        }  # fmt: skip
        return chances.get(label, 0.0)


@dataclass(frozen=True, slots=True)
class Example:
    """A post with the answer that is wanted for it. `brands`: as for a post that names them."""

    text: str
    answer: Mapping[str, Any]
    brands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PromptText:
    """The prompt of a language. `user` holds `{text}`, `brands` holds `{brands}`, `hint` `{label}` and `{score}`.

    `event_hint` stands in the place of `hint` where the event type is clear, and holds `{event}` as well.
    """

    system: str
    user: str
    brands: str
    hint: str
    event_hint: str
    examples: Sequence[Example] = field(default_factory=tuple)


def build_messages(
    prompt: PromptText, text: str, *, brands: Sequence[str] = (), hint: Hint | None = None
) -> list[dict[str, str]]:
    """The messages for a post, whose text is evened out. The post stands in one line, after a label, as data."""
    head = build_head(prompt, has_hint=hint is not None, has_event=hint is not None and bool(hint.event))
    return [*head, build_turn(prompt, text, brands=brands, hint=hint)]


def build_head(prompt: PromptText, *, has_hint: bool, has_event: bool = False) -> list[dict[str, str]]:
    """The messages before that of the post, which are the same for all posts: the instruction and the examples."""
    messages = [{"role": "system", "content": prompt.system}]
    for example in prompt.examples:
        label, score = example.answer["sentiment_label"], example.answer["sentiment_score"]
        event = str(example.answer["event_type"]) if has_event else ""
        # Without a hint for the post, hints in examples would promise one.
        tone = _tone(prompt, str(label), int(score), event) if has_hint else ""
        messages.append({"role": "user", "content": _turn(prompt, example.text, example.brands, tone)})
        messages.append({"role": "assistant", "content": json.dumps(example.answer, ensure_ascii=False)})
    return messages


def build_turn(
    prompt: PromptText, text: str, *, brands: Sequence[str] = (), hint: Hint | None = None
) -> dict[str, str]:
    """The message of a post."""
    tone = _tone(prompt, hint.label, hint.score, hint.event) if hint is not None else ""
    return {"role": "user", "content": _turn(prompt, text, brands, tone)}


def _turn(prompt: PromptText, text: str, brands: Sequence[str], tone: str) -> str:
    # replace, not format: posts hold braces.
    lines = [prompt.user.replace("{text}", as_data(text))]
    if brands:
        lines.append(prompt.brands.replace("{brands}", as_data(", ".join(brands))))
    if tone:
        lines.append(tone)
    return "\n".join(lines)


def _tone(prompt: PromptText, label: str, score: int, event: str) -> str:
    line = prompt.event_hint.replace("{event}", event) if event else prompt.hint
    return line.replace("{label}", label).replace("{score}", str(score))


def pick_prompt(prompts: Mapping[Language, PromptText], language: Language) -> PromptText:
    """The prompt of a language; posts in others get the English one."""
    return prompts.get(language) or prompts["en"]
