"""Posts, records and facts for tests of the opinion application."""

from typing import Any, Final

from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record, Verdict
from ssop_opinion.core.rules import Facts

START_MS: Final = 1_795_000_000_000
TENANT: Final = "acme"
FIELDS: Final[dict[str, Any]] = {
    "main_entity": "X200",
    "entity_type": "product",
    "event_type": "failure",
    "sentiment_score": -4,
    "sentiment_label": "negative",
    "severity": 4,
    "confidence": 0.9,
    "summary": "The X200 overheats.",
    "evidence": "overheats",
    "language": "en",
    "audience": "customers",
    "suggested_action": "escalate",
}


def make_post(post_id: str = "1", *, at_ms: int = START_MS, text: str = "The X200 overheats.", **changes: Any) -> Post:
    """A post of TENANT, or of another."""
    return Post(
        **{
            "tenant": TENANT,
            "source": "shop",
            "id": post_id,
            "text": text,
            "channel": "webhook",
            "received_ms": at_ms,
            "region": "east",
            "product_line": "phones",
            **changes,
        }
    )


def make_record(
    post: Post, *, verdict: Verdict = "ok", degraded_level: int = 0, reason: str = "", **fields: Any
) -> Record:
    """What an analysis found of a post; `fields` differ from FIELDS."""
    analysis = Analysis(
        fields={**FIELDS, **fields},
        verdict=verdict,
        reason=reason,
        schema_id="post",
        schema_hash="ab12",
        request_id=f"r-{post.id}",
        tier="lite",
        model="small",
        cache="MISS",
        degraded_level=degraded_level,
        first_field_ms=120.0,
        total_ms=480.0,
    )
    return Record(post, analysis, post.received_ms + 500)


def make_facts(
    key: str = "1",
    *,
    at_ms: int = START_MS,
    is_final: bool = True,
    is_valid: bool = True,
    level: int = 0,
    **values: Any,
) -> Facts:
    """Facts of a post whose fields differ from FIELDS."""
    found = {**FIELDS, "region": "east", "product_line": "phones", "channel": "webhook", "source": "shop", **values}
    return Facts(key, TENANT, found, at_ms, is_final=is_final, is_valid=is_valid, degraded_level=level)
