"""Records as documents of Elasticsearch and OpenSearch: their index, their template, their policy, and searches."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ssop_opinion.core.document import terms_of, to_document
from ssop_opinion.core.record import Record
from ssop_opinion.ports import Query

MAX_WINDOW: Final = 10_000
"""`index.max_result_window`: what a search can page through."""
_MS_A_DAY: Final = 86_400_000
_AHEAD_MS: Final = _MS_A_DAY
_MAX_TERM_CHARS: Final = 256
_KEYWORDS: Final = (
    "main_entity", "entity_type", "event_type", "sentiment_label", "language", "audience", "suggested_action",
)  # fmt: skip
_NUMBERS: Final = ("sentiment_score", "severity", "confidence")


def index_of(record: Record, prefix: str, retention_days: int) -> str:
    """The index of a record, one a month.

    It must not depend on when the post came, or one that comes twice over the turn of a month would be kept twice: so
    the time of posting decides, where the source gives one that the index would not be too old for.
    """
    post = record.post
    age_ms = post.received_ms - post.posted_ms
    is_usable = post.posted_ms > 0 and -_AHEAD_MS <= age_ms < retention_days * _MS_A_DAY
    moment = datetime.fromtimestamp((post.posted_ms if is_usable else post.received_ms) / 1000, UTC)
    return f"{prefix}-{moment:%Y.%m}"


def make_source(record: Record) -> dict[str, Any]:
    """What is indexed. `document` is the whole record and is not searched."""
    post, fields = record.post, record.analysis.fields
    said = [value for value in fields.values() if isinstance(value, str)]
    typed: dict[str, Any] = {name: fields[name] for name in _KEYWORDS if isinstance(fields.get(name), str)}
    typed |= {name: fields[name] for name in _NUMBERS if _is_number(fields.get(name))}
    return {
        "tenant": post.tenant,
        "received_at": post.received_ms,
        "posted_at": post.posted_ms or None,
        "text": "\n".join((post.text, *said)),
        "is_fresh": record.analysis.is_fresh,
        "terms": sorted(
            _term(name, value) for name, value in terms_of(record).items() if len(value) <= _MAX_TERM_CHARS
        ),
        "fields": typed,
        "document": to_document(record),
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _term(name: str, value: str) -> str:
    return f"{name}={value}"


def make_template(prefix: str, *, shards: int, replicas: int, policy: str = "") -> dict[str, Any]:
    """The index template. `policy` is the name of an ILM policy, for Elasticsearch."""
    settings: dict[str, Any] = {"number_of_shards": shards, "number_of_replicas": replicas}
    if policy:
        settings["index.lifecycle.name"] = policy
    keyword: dict[str, Any] = {"type": "keyword", "ignore_above": _MAX_TERM_CHARS}
    properties: dict[str, Any] = {
        "tenant": {"type": "keyword"},
        "received_at": {"type": "date", "format": "epoch_millis"},
        "posted_at": {"type": "date", "format": "epoch_millis"},
        # Chinese becomes single characters, which a phrase finds in their order.
        "text": {"type": "text", "analyzer": "standard"},
        "is_fresh": {"type": "boolean"},
        "terms": {"type": "keyword"},
        "fields": {
            "properties": {
                **dict.fromkeys(_KEYWORDS, keyword),
                **{name: {"type": "double", "ignore_malformed": True} for name in _NUMBERS},
            }
        },
        "document": {"type": "object", "enabled": False},
    }
    # Nothing that a model or a sender says may grow the mapping.
    mappings = {"dynamic": False, "properties": properties}
    return {
        "index_patterns": [f"{prefix}-*"],
        "priority": 200,
        "template": {"settings": settings, "mappings": mappings},
    }


def make_ilm_policy(retention_days: int) -> dict[str, Any]:
    """Elasticsearch's lifecycle: an index is deleted when it is a month older than what is kept."""
    return {
        "phases": {
            "hot": {"min_age": "0ms", "actions": {}},
            "delete": {"min_age": f"{retention_days + 31}d", "actions": {"delete": {}}},
        }
    }


def make_ism_policy(prefix: str, retention_days: int) -> dict[str, Any]:
    """The same for OpenSearch's Index State Management."""
    transition = {"state_name": "delete", "conditions": {"min_index_age": f"{retention_days + 31}d"}}
    return {
        "policy": {
            "description": "Records of the opinion application",
            "default_state": "hot",
            "states": [
                {"name": "hot", "actions": [], "transitions": [transition]},
                {"name": "delete", "actions": [{"delete": {}}], "transitions": []},
            ],
            "ism_template": [{"index_patterns": [f"{prefix}-*"], "priority": 200}],
        }
    }


def make_search(query: Query) -> dict[str, Any]:
    """The body of a search. What is asked for stands in values only."""
    filters: list[Mapping[str, Any]] = [{"term": {"tenant": query.tenant}}]
    if query.since_ms is not None or query.until_ms is not None:
        bounds = {"gte": query.since_ms, "lt": query.until_ms}
        filters.append({"range": {"received_at": {name: value for name, value in bounds.items() if value is not None}}})
    filters += [{"term": {"terms": _term(name, value)}} for name, value in (query.terms or {}).items()]
    if not query.has_degraded:
        filters.append({"term": {"is_fresh": True}})
    filters += [{"match_phrase": {"text": word}} for word in query.text.split()[:32]]
    return {
        "query": {"bool": {"filter": filters}},
        "sort": [{"received_at": "desc"}],
        "from": min(query.offset, MAX_WINDOW),
        "size": max(0, min(query.limit, MAX_WINDOW - query.offset)),
        "track_total_hits": True,
        "_source": ["document"],
    }
