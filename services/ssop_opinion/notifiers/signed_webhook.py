"""A signed webhook, for what has no robot: Jira, Notion, Zapier, a service of one's own.

POST of a JSON object, signed as webhooks that come in are (core/signature.py), with a nonce of its own for each try:
`x-ssop-timestamp`, `x-ssop-nonce`, `x-ssop-signature`. The header `idempotency-key` is the same whenever the same
message is sent again.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ssop_opinion.alert_store import Message
from ssop_opinion.core.alerts import Notice
from ssop_opinion.core.signature import sign
from ssop_opinion.notifiers import words
from ssop_opinion.notifiers.notifier import Outlet, check_status, encode

PER_MINUTE: Final = 600


class SignedWebhook:
    """One receiver. Messages go one by one: receivers make a ticket of each."""

    most = 1

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    async def tell(self, messages: Sequence[Message], now_ms: int) -> None:
        """See Notifier."""
        message = messages[0]
        body = encode(describe(message.notice, self._outlet.language, self._outlet.page_url))
        timestamp, nonce = str(now_ms // 1_000), secrets.token_hex(16)
        headers = {
            "x-ssop-timestamp": timestamp,
            "x-ssop-nonce": nonce,
            "x-ssop-signature": sign(self._outlet.read_secret().encode(), timestamp, nonce, body),
            "idempotency-key": message.id,
        }
        check_status(await self._outlet.post(body, headers))


def describe(notice: Notice, language: words.Language, page_url: str = "") -> Mapping[str, Any]:
    """The body: flat, so that a mapping in another system needs no code."""
    alert = notice.alert
    told = alert.told or {}
    return {
        "id": notice.id,
        "alert_id": alert.id,
        "event": notice.event,
        "kind": alert.kind,
        "title": words.headline(notice, language),
        "text": "\n".join(
            [*words.remarks(notice, language), *(f"{a}: {b}" for a, b in words.details(notice, language))]
        ),
        "tenant": alert.tenant,
        "severity": alert.severity,
        "phase": alert.phase,
        "is_provisional": alert.phase == "provisional",
        "degraded_posts": alert.degraded_posts,
        "posts": alert.posts,
        "more": alert.more,
        "rule": alert.rule,
        "policy": alert.policy,
        "entity": alert.entity,
        "event_type": alert.event_type,
        "region": alert.region,
        "product_line": alert.product_line,
        "sentiment_score": told.get("sentiment_score"),
        "sentiment_label": told.get("sentiment_label"),
        "summary": told.get("summary"),
        "suggested_action": told.get("suggested_action"),
        "escalations": alert.escalations,
        "first_post_ms": alert.first_post_ms,
        "opened_ms": alert.opened_ms,
        "at_ms": notice.at_ms,
        "url": page_url and f"{page_url}#alert={alert.id}",
    }
