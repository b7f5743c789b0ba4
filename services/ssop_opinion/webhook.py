"""POST /v1/opinion/posts: signed posts, one or many, answered when they are on disk.

202 says that every post is queued, was queued before, or was left out by sampling; what is no post is named by its
place and is a dead letter, unless nothing was one: 422. 429 says that some or all found no room: send it again, signed
anew; posts that were taken are known by their ids.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from ssop_chassis.settings import SettingsError
from ssop_opinion.core.post import PostError
from ssop_opinion.core.reading import split_body
from ssop_opinion.core.signature import SignatureError, Signed, check_signature
from ssop_opinion.core.turns import may_take
from ssop_opinion.intake import Intake, Judged, Origin
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.queue import DUPLICATE, QUEUED, REFUSED, SAMPLED_OUT, Appended, QueueAwayError, ReplayedError
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.tenants import MIN_SECRET_BYTES, Tenant, read_secret

PATH: Final = "/v1/opinion/posts"
MAX_NAMED_FAULTS: Final = 100
_RETRY_AFTER: Final = {"retry-after": "1"}
_STRANGERS: Final = ""
"""Whose requests count together that name no key."""
_log = logging.getLogger(__name__)


Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer, before it is written."""

    document: Mapping[str, Any]
    status: int
    headers: Headers | None = None


@dataclass(frozen=True, slots=True)
class _Key:
    secret: bytes
    origin: Origin


class WebhookError(Exception):
    """A request that is refused as a whole. `reason` is a word for programs."""

    def __init__(self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.headers = headers


def load_keys(tenants: Mapping[str, Tenant]) -> dict[str, _Key]:
    """The keys of tenants, by id. Raises SettingsError."""
    keys: dict[str, _Key] = {}
    for tenant in tenants.values():
        for key in tenant.webhook_keys:
            defaults = {"region": key.region, "product_line": key.product_line}
            origin = Origin(tenant.name, key.source, "webhook", defaults, tenant.has_unknown_members)
            keys[key.id] = _Key(read_secret(key.secret_file, at_least_bytes=MIN_SECRET_BYTES).encode(), origin)
    return keys


class Webhook:
    """The door, an ASGI application of its own: posts come in small requests, and a framework costs as much as they do.

    `now_ms` is the wall clock.
    """

    def __init__(
        self,
        settings: OpinionSettings,
        keys: Mapping[str, _Key],
        intake: Intake,
        metrics: OpinionMetrics,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._keys = dict(keys)
        self._intake = intake
        self._metrics = metrics
        self._now_ms = now_ms
        self._running: Counter[str] = Counter()
        self._is_shared = self._has_several()

    async def admit(self, tenants: Mapping[str, Tenant]) -> Callable[[], None]:
        """See wiring.Admit."""
        keys = load_keys(tenants)
        if taken := keys.keys() & self._keys.keys():
            raise SettingsError(f"webhook keys of a tenant that runs: {', '.join(sorted(taken))}")

        def let_in() -> None:
            self._keys.update(keys)
            self._is_shared = self._has_several()

        return let_in

    def _has_several(self) -> bool:
        return len({key.origin.tenant for key in self._keys.values()}) > 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            answer = await self._answer(_headers(scope), receive)
        except WebhookError as error:
            document = {"error": {"reason": error.reason, "message": str(error)}}
            answer = _Answer(document, error.status, error.headers)
        self._metrics.requests.labels(str(answer.status)).inc()
        body = to_json(answer.document)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        headers += [(name.encode(), value.encode()) for name, value in (answer.headers or {}).items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, headers: Headers, receive: Receive) -> _Answer:
        # Whose request it is says the request; whether that is so is known when its body is.
        named = self._keys.get(headers.get("x-ssop-key", "").strip())
        tenant = named.origin.tenant if named is not None else _STRANGERS
        free = self._settings.max_in_flight - self._running.total()
        if not may_take(self._running[tenant], free, is_shared=self._is_shared):
            raise WebhookError(429, "OVERLOADED", "as many webhooks run as may", _RETRY_AFTER)
        self._running[tenant] += 1
        try:
            body = await self._read_body(headers, receive)
            key, nonce = self._check(headers, body)
            return await self._take(body, _media_type(headers), key.origin, nonce)
        finally:
            self._running[tenant] -= 1

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        if headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
            raise WebhookError(415, "UNSUPPORTED_MEDIA_TYPE", "bodies are taken without a content encoding")
        limit = self._settings.max_body_bytes
        length = headers.get("content-length", "")
        parts: list[bytes] = []
        size = int(length) if length.isascii() and length.isdecimal() and len(length) < 16 else 0
        if size <= limit:
            size = 0
            try:
                async with asyncio.timeout(self._settings.body_timeout_ms / 1000):
                    while size <= limit:
                        message = await receive()
                        if message["type"] != "http.request":
                            break
                        part = message.get("body", b"")
                        size += len(part)
                        parts.append(part)
                        if size <= limit and not message.get("more_body", False):
                            return b"".join(parts)
            except TimeoutError:
                raise WebhookError(408, "BODY_TIMEOUT", "the body did not arrive in time", _CLOSE) from None
        if size > limit:
            raise WebhookError(413, "MESSAGE_TOO_LARGE", f"a body has at most {limit} bytes", _CLOSE)
        raise WebhookError(400, "BODY_INCOMPLETE", "the body ended before its length", _CLOSE)

    def _check(self, headers: Headers, body: bytes) -> tuple[_Key, str]:
        """Who sends. An unknown key and a wrong signature are answered alike."""
        signed = Signed(
            *(headers.get(f"x-ssop-{name}", "").strip() for name in ("key", "timestamp", "nonce", "signature"))
        )
        key = self._keys.get(signed.key_id)
        try:
            check_signature(
                signed,
                key.secret if key is not None else None,
                body,
                now_ms=self._now_ms(),
                window_ms=self._settings.signature_window_ms,
            )
        except SignatureError as error:
            raise WebhookError(401, f"SIGNATURE_{error.reason.upper()}", str(error)) from None
        if key is None:
            raise WebhookError(401, "SIGNATURE_MISMATCH", "the signature is not that of the key")
        return key, f"{signed.key_id}:{signed.nonce}"

    async def _take(self, body: bytes, media_type: str, origin: Origin, nonce: str) -> _Answer:
        try:
            found = split_body(body, media_type, self._settings.max_batch_posts)
        except PostError as error:
            if error.reason == "too_many_posts":
                raise WebhookError(413, "TOO_MANY_POSTS", str(error)) from None
            judged = Judged((), [(0, error, body)])
        else:
            judged = self._intake.judge(((one, b"") for one in found), origin)
        try:
            appended = await self._append(judged, origin, nonce)
        except ReplayedError:
            raise WebhookError(
                409, "REPLAYED", "the nonce was used before: sign each request anew, with a nonce of its own"
            ) from None
        except QueueAwayError:
            raise WebhookError(
                503, "QUEUE_UNAVAILABLE", "posts can't be kept now; nothing was accepted", _RETRY_AFTER
            ) from None
        await self._intake.note(judged, origin)
        return self._response(judged, appended)

    async def _append(self, judged: Judged, origin: Origin, nonce: str) -> Appended:
        # Also without posts: the nonce is used up by a request of faults, too.
        return await self._intake.append([post for _, post in judged.posts], origin, nonce)

    @staticmethod
    def _response(judged: Judged, appended: Appended) -> _Answer:
        outcomes = appended.outcomes
        refused = outcomes.count(REFUSED)
        faults = [
            {"index": place, "reason": error.reason, "message": str(error)}
            for place, error, _ in judged.faults[:MAX_NAMED_FAULTS]
        ]
        answer: dict[str, Any] = {
            "accepted": outcomes.count(QUEUED),
            "duplicates": outcomes.count(DUPLICATE),
            "sampled_out": outcomes.count(SAMPLED_OUT),
            "refused": refused,
            "faulty": len(judged.faults),
            "faults": faults,
        }
        if refused:
            answer["error"] = {"reason": "QUEUE_FULL", "message": "too many posts wait; send it again, signed anew"}
            return _Answer(answer, 429, _RETRY_AFTER)
        if not judged.posts:
            answer["error"] = {"reason": "NO_POST", "message": "nothing in the body is a post"}
            return _Answer(answer, 422)
        return _Answer(answer, 202)


_CLOSE: Final = {"connection": "close"}


def _headers(scope: Scope) -> Headers:
    """The headers by their names in lower case; of one that comes twice the first counts."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()
