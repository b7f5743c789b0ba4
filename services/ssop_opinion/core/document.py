"""Records as JSON documents, as sinks and exports keep them, and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record

_POST: Final = tuple(field.name for field in fields(Post))
_ANALYSIS: Final = tuple(field.name for field in fields(Analysis))


def to_document(record: Record) -> dict[str, Any]:
    """`{"key", "post", "analysis", "analysed_ms"}`; the members of both are those of their classes."""
    post, analysis = record.post, record.analysis
    return {
        "key": record.key,
        "post": {name: getattr(post, name) for name in _POST},
        "analysis": {name: getattr(analysis, name) for name in _ANALYSIS} | {"sources": list(analysis.sources)},
        "analysed_ms": record.analysed_ms,
    }


def from_document(document: Mapping[str, Any]) -> Record:
    """The record of a document. Members that a later version wrote are left out. Raises KeyError and TypeError."""
    post, analysis = document["post"], document["analysis"]
    found: dict[str, Any] = {name: analysis[name] for name in _ANALYSIS if name in analysis}
    found["sources"] = tuple(found.get("sources", ()))
    return Record(
        post=Post(**{name: post[name] for name in _POST if name in post}),
        analysis=Analysis(**found),
        analysed_ms=document["analysed_ms"],
    )


def terms_of(record: Record) -> dict[str, str]:
    """What a query may ask for by equality: the post's metadata, and every field that is one value.

    A field that is named as metadata is under its own name with `field.` before it.
    """
    post, analysis = record.post, record.analysis
    terms = {
        "key": record.key,
        "source": post.source,
        "channel": post.channel,
        "region": post.region,
        "product_line": post.product_line,
        "post_language": post.language,
        "verdict": analysis.verdict,
        "degraded_level": str(analysis.degraded_level),
        "tier": analysis.tier,
        "model": analysis.model,
    }
    for name, value in analysis.fields.items():
        text = term_text(value)
        if text is not None:
            terms[f"field.{name}" if name in terms else name] = text
    return terms


def term_text(value: Any) -> str | None:
    """A value as terms have it; None for one that is no single value."""
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else None
