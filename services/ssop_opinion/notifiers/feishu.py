"""Feishu (Lark) custom robots, https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot.

A robot takes 100 messages a minute and 5 a second, of at most 20 KB. Messages are of the type `post`, whose texts are
never markup: in the type `text` a post could mention everybody.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ssop_opinion.alert_store import Message
from ssop_opinion.notifiers import words
from ssop_opinion.notifiers.notifier import (
    BrokenError,
    LaterError,
    Outlet,
    RefusedError,
    Reply,
    check_status,
    cut,
    encode,
)

PER_MINUTE: Final = 100
MAX_BODY_BYTES: Final = 20_000
RATE_LIMIT_WAIT_MS: Final = 60_000
_LATER: Final[Mapping[int, str]] = {11232: "RATE_LIMITED", 99991400: "RATE_LIMITED", 11233: "RATE_LIMITED"}
_BROKEN: Final[Mapping[int, str]] = {
    19001: "KEY_INVALID",
    19021: "SIGNATURE_REFUSED",
    19022: "IP_NOT_ALLOWED",
    19024: "KEYWORD_MISSING",
}
_LINE_BYTES: Final = 600


class FeishuRobot:
    """One robot, with or without a signature."""

    most = 50

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    async def tell(self, messages: Sequence[Message], now_ms: int) -> None:
        """See Notifier."""
        notices = [one.notice for one in messages]
        if len(notices) == 1:
            title = words.headline(notices[0], self._outlet.language)
            lines = words.remarks(notices[0], self._outlet.language)
            lines += [f"{name}: {value}" for name, value in words.details(notices[0], self._outlet.language)]
        else:
            title, lines = words.digest(notices, self._outlet.language)
        content: list[list[dict[str, str]]] = [[{"tag": "text", "text": cut(line, _LINE_BYTES)}] for line in lines]
        if self._outlet.page_url:
            content.append([{"tag": "a", "text": self._outlet.page_url, "href": self._outlet.page_url}])
        name = "zh_cn" if self._outlet.language == "zh" else "en_us"
        body: dict[str, Any] = {
            "msg_type": "post",
            "content": {"post": {name: {"title": cut(title, _LINE_BYTES), "content": content}}},
        }
        if secret := self._outlet.read_secret():
            timestamp = now_ms // 1_000
            body = {"timestamp": str(timestamp), "sign": sign(timestamp, secret), **body}
        judge(await self._outlet.post(encode(body)))


def sign(timestamp_s: int, secret: str) -> str:
    """The robot's signature: HMAC-SHA-256 of nothing, under the time and the secret, in base64."""
    key = f"{timestamp_s}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


def judge(reply: Reply) -> None:
    """Raise what an answer means. Older robots answer `StatusCode`."""
    code = reply.code("code")
    code = reply.code("StatusCode") if code is None else code
    if code is None:
        check_status(reply)
        raise LaterError("REPLY_UNKNOWN")
    if code in _LATER:
        raise LaterError(_LATER[code], reply.retry_after_ms or RATE_LIMIT_WAIT_MS)
    if code in _BROKEN:
        raise BrokenError(_BROKEN[code])
    check_status(reply)
    if code != 0:
        raise RefusedError(f"CODE_{code}")
