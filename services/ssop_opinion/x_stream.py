"""The door for X: its filtered stream (API version 2), one long-lived connection that beats every 20 seconds."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from ssop_chassis.logs import describe
from ssop_opinion.core.post import MAX_LABEL_BYTES, PostError
from ssop_opinion.core.reading import LineSplitter, parse_post
from ssop_opinion.core.reconnect import Break, backfill_minutes, pause_s
from ssop_opinion.intake import Intake, Origin
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.settings import XStreamSettings
from ssop_opinion.tenants import read_secret

_FIELDS: Final = "created_at,lang,note_tweet"
_CONNECT_TIMEOUT_S: Final = 10.0
_TOO_MANY: Final = 429
_log = logging.getLogger(__name__)


class StreamEndedError(Exception):
    """The server ended the stream, as it does when it is restarted or the reader is slow."""


class XStream:
    """A stream of a tenant. `sleep` and `now_s` (monotonic) are passed in."""

    def __init__(
        self,
        settings: XStreamSettings,
        intake: Intake,
        metrics: OpinionMetrics,
        *,
        sleep: Callable[[float], Any] = asyncio.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._metrics = metrics
        self._sleep = sleep
        self._now_s = now_s
        self._origin = Origin(settings.tenant, settings.source, "x_stream", has_unknown_members=True)
        self._heard_s: float | None = None
        self._failures: dict[Break, int] = {}

    async def run(self) -> None:
        """Read until cancelled, through all breaks."""
        stall_s = self._settings.stall_timeout_ms / 1000
        timeout = httpx.Timeout(_CONNECT_TIMEOUT_S, read=stall_s)
        async with httpx.AsyncClient(timeout=timeout, follow_redirects=False) as client:
            while True:
                kind, reset_in_s = await self._read_once(client)
                failures = self._failures[kind] = self._failures.get(kind, 0) + 1
                wait_s = pause_s(kind, failures, reset_in_s)
                self._metrics.tries.labels("x_stream").inc()
                _log.warning("the stream of X broke", extra={"kind": kind, "pause_s": wait_s})
                await self._sleep(wait_s)

    async def _read_once(self, client: httpx.AsyncClient) -> tuple[Break, float | None]:
        """Connect and read; what ended it, and when a limit is reset."""
        params: dict[str, str | int] = {"tweet.fields": _FIELDS}
        if self._heard_s is not None:
            minutes = backfill_minutes(self._now_s() - self._heard_s, self._settings.backfill_minutes)
            if minutes:
                params["backfill_minutes"] = minutes
        try:
            # Read at each connect: tokens are rotated.
            headers = {"authorization": f"Bearer {read_secret(self._settings.token_file)}"}
            async with client.stream("GET", self._settings.url, params=params, headers=headers) as response:
                if response.status_code != httpx.codes.OK:
                    _log.error("X refuses the stream", extra={"status": response.status_code})
                    is_rate = response.status_code == _TOO_MANY
                    return (Break.RATE, _reset_in_s(response)) if is_rate else (Break.HTTP, None)
                await self._read_lines(response)
        except (httpx.HTTPError, StreamEndedError) as error:
            _log.info("the stream of X ended: %s", describe(error))
        except ValueError as error:
            _log.error("the token of X can't be read: %s", describe(error))
            return Break.HTTP, None
        return Break.NETWORK, None

    async def _read_lines(self, response: httpx.Response) -> None:
        lines = LineSplitter()
        async for piece in response.aiter_bytes():
            # A beat is an empty line.
            self._heard_s = self._now_s()
            self._failures.clear()
            found = list(lines.feed(piece))
            posts, has_ended = _read(found)
            if posts:
                await self._intake.take(posts, self._origin)
            if has_ended:
                raise StreamEndedError


def _read(lines: list[bytes | PostError]) -> tuple[list[tuple[Mapping[str, Any] | PostError, bytes]], bool]:
    """Posts of lines, or their faults; and whether a line says that the stream ends."""
    found: list[tuple[Mapping[str, Any] | PostError, bytes]] = []
    for line in lines:
        if isinstance(line, PostError):
            found.append((line, b""))
            continue
        try:
            value = parse_post(line)
            if "data" not in value and "errors" in value:
                return found, True
            found.append((_post_of(value), line))
        except PostError as error:
            found.append((error, line))
    return found, False


def _post_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """A post in this project's members. Raises PostError for what is not of X's form."""
    data = found.get("data")
    if not isinstance(data, dict):
        raise PostError("not_an_object", "a line of X's stream has an object `data`")
    note = data.get("note_tweet")
    text = note.get("text") if isinstance(note, dict) else data.get("text")
    post = {"id": data.get("id"), "text": text, "posted_at": data.get("created_at"), "language": data.get("lang")}
    rules = found.get("matching_rules")
    tag = rules[0].get("tag") if isinstance(rules, list) and rules and isinstance(rules[0], dict) else None
    if isinstance(tag, str) and len(tag.encode()) <= MAX_LABEL_BYTES:
        post["product_line"] = tag
    return {name: value for name, value in post.items() if value is not None}


def _reset_in_s(response: httpx.Response) -> float | None:
    """When the limit is reset, by the server's own clock."""
    reset, date = response.headers.get("x-rate-limit-reset", ""), response.headers.get("date", "")
    if not reset.isdecimal():
        return None
    try:
        now_s = parsedate_to_datetime(date).timestamp()
    except ValueError:
        now_s = time.time()
    return float(reset) - now_s
