"""What the analysis of a post found. One record a post, whatever happened to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ssop_opinion.core.post import Post

Verdict = Literal["ok", "invalid", "incomplete", "failed"]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The mesh's answer for one post. `fields` are final only with the verdict `ok`.

    `degraded_level` is 0 for an answer of the chosen tier (DESIGN section 2). `reason` says why the verdict is not
    `ok`: the rule and its pointer, or the reason of an error. `cache` is the cache reason of the decision. `hint` is
    what the sentiment model said before the prompt was made, from -1 to 1; None without one; `event_hint` is the event
    type that it said, empty where none was clear. `probabilities` are those
    of the chosen values after the grammar's mask, by field, where the model gives them. `sources` are the documents of
    the passages that were put before the model, as `COLLECTION/DOCUMENT`, best first.
    """

    fields: Mapping[str, Any]
    verdict: Verdict
    reason: str = ""
    schema_id: str = ""
    schema_hash: str = ""
    request_id: str = ""
    tier: str = ""
    model: str = ""
    cache: str = ""
    degraded_level: int = 0
    first_field_ms: float | None = None
    total_ms: float = 0.0
    hint: float | None = None
    event_hint: str = ""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    passages: int = 0
    sources: Sequence[str] = ()

    @property
    def is_fresh(self) -> bool:
        """It counts in statistics: whole, valid, and not degraded."""
        return self.verdict == "ok" and self.degraded_level == 0


@dataclass(frozen=True, slots=True)
class Record:
    """A post with its analysis, as sinks keep it. Times are Unix milliseconds."""

    post: Post
    analysis: Analysis
    analysed_ms: int

    @property
    def key(self) -> str:
        """The post's key: a sink keeps one record for it."""
        return self.post.key
