"""WeCom group robots: markdown by webhook, https://developer.work.weixin.qq.com/document/path/91770.

A robot takes 20 messages a minute, of at most 4,096 bytes in UTF-8. It answers 200 whatever happens; `errcode` counts.
"""

from collections.abc import Mapping, Sequence
from typing import Final

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

PER_MINUTE: Final = 20
MAX_CONTENT_BYTES: Final = 4_096
RATE_LIMIT_WAIT_MS: Final = 60_000
_COLOURS: Final = {"info": "comment", "warning": "warning", "critical": "warning"}
# https://developer.work.weixin.qq.com/document/path/90313, where robots' own are not documented, by what they answer.
_LATER: Final[Mapping[int, tuple[str, int | None]]] = {
    -1: ("SYSTEM_BUSY", None),
    45009: ("RATE_LIMITED", RATE_LIMIT_WAIT_MS),
    45033: ("TOO_MANY_CALLS", None),
}
_BROKEN: Final[Mapping[int, str]] = {
    93000: "KEY_INVALID",
    93008: "ROBOT_NOT_IN_GROUP",
    93017: "ROBOT_NOT_IN_GROUP",
    40001: "KEY_INVALID",
    60020: "IP_NOT_ALLOWED",
}
# Robots take HTML-like tags, mentions, links and emphasis; a post must not bring its own.
_PLAIN: Final = str.maketrans({
    "<": "＜", ">": "＞", "@": "＠", "[": "［", "]": "］", "`": "｀", "*": "＊", "#": "＃", "_": "＿", "\r": " ",
    "\n": " ", "&": "＆", "\u2028": " ", "\u2029": " ",
})  # fmt: skip


class WecomRobot:
    """One robot. It has no signature."""

    most = 50

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    async def tell(self, messages: Sequence[Message], now_ms: int) -> None:  # noqa: ARG002 - see Notifier
        """See Notifier."""
        content = self._single(messages[0]) if len(messages) == 1 else self._several(messages)
        body = {"msgtype": "markdown", "markdown": {"content": cut(content, MAX_CONTENT_BYTES)}}
        judge(await self._outlet.post(encode(body)))

    def _single(self, message: Message) -> str:
        notice = message.notice
        colour = _COLOURS[notice.alert.severity]
        lines = [f'<font color="{colour}">**{escape(words.headline(notice, self._outlet.language))}**</font>']
        lines += [f"**{escape(one)}**" for one in words.remarks(notice, self._outlet.language)]
        lines += [
            f'> {escape(name)}: <font color="comment">{escape(value)}</font>'
            for name, value in words.details(notice, self._outlet.language)
        ]
        if self._outlet.page_url:
            lines.append(f"[{self._outlet.page_url}]({self._outlet.page_url}#alert={notice.alert.id})")
        return "\n".join(lines)

    def _several(self, messages: Sequence[Message]) -> str:
        title, lines = words.digest([one.notice for one in messages], self._outlet.language)
        link = [f"[{self._outlet.page_url}]({self._outlet.page_url})"] if self._outlet.page_url else []
        # Whole lines: the room of one message is shared.
        room = (MAX_CONTENT_BYTES - 512) // max(1, len(lines))
        return "\n".join([f"**{escape(title)}**", *(f"> {cut(escape(line), room)}" for line in lines), *link])


def escape(text: str) -> str:
    """A text that is no markup: what could be becomes its full-width twin."""
    return text.translate(_PLAIN)


def judge(reply: Reply) -> None:
    """Raise what an answer means."""
    code = reply.code("errcode")
    if code is None:
        check_status(reply)
        # Something between us and the robot answered.
        raise LaterError("REPLY_UNKNOWN")
    if code == 0:
        return
    if code in _LATER:
        reason, wait_ms = _LATER[code]
        raise LaterError(reason, wait_ms)
    if code in _BROKEN:
        raise BrokenError(_BROKEN[code])
    raise RefusedError(f"ERRCODE_{code}")
