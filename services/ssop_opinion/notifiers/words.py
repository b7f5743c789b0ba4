"""What messages say, in English and Chinese, as plain text: markup is each channel's business."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ssop_opinion.core.alerts import Alert, Notice

Language = Literal["en", "zh"]
MAX_LINES: Final = 15
_EN: Final[Mapping[str, str]] = {
    "opened": "New alert", "confirmed": "Confirmed", "corrected": "Corrected", "withdrawn": "Withdrawn",
    "raised": "Graver now", "grown": "Growing", "escalated": "Nobody has acknowledged", "expired": "Over",
    "storm": "Many alerts", "info": "info", "warning": "warning", "critical": "critical",
    "provisional": "provisional: the answer is not complete yet", "degraded": "from degraded answers",
    "rule": "Rule", "posts": "Posts", "region": "Region", "product": "Product line", "score": "Sentiment",
    "summary": "Summary", "action": "Suggested action", "first": "First post", "id": "Alert", "page": "Page",
    "entities": "Most named", "more": "and {n} more, which are on the page", "several": "{n} messages about alerts",
    "held": "{n} alerts of this kind were not opened one by one", "none": "(no entity)",
    "wrong": "What was told of the first post was not confirmed; the alert rests on others",
}  # fmt: skip
_ZH: Final[Mapping[str, str]] = {
    "opened": "新告警", "confirmed": "已确认", "corrected": "已更正", "withdrawn": "已撤回", "raised": "级别上升",
    "grown": "持续增长", "escalated": "尚无人确认", "expired": "已结束", "storm": "告警过多", "info": "提示",
    "warning": "警告", "critical": "严重", "provisional": "初步结果：分析尚未完成", "degraded": "来自降级结果",
    "rule": "规则", "posts": "帖子数", "region": "地区", "product": "产品线", "score": "情感", "summary": "摘要",
    "action": "建议动作", "first": "首帖时间", "id": "告警", "page": "页面", "entities": "涉及最多",
    "more": "另有 {n} 条，见页面", "several": "{n} 条告警消息", "held": "另有 {n} 个同级告警未逐条发送",
    "none": "（无主体）", "wrong": "首帖的初步结果未被确认，告警依据其他帖子",
}  # fmt: skip
_WORDS: Final[Mapping[Language, Mapping[str, str]]] = {"en": _EN, "zh": _ZH}


def headline(notice: Notice, language: Language) -> str:
    """One line that says it all."""
    words, alert = _WORDS[language], notice.alert
    about = words["held"].format(n=alert.more) if alert.kind == "storm" else _about(alert, words)
    return f"[{words[alert.severity]}] {words[notice.event]}: {about}"


def details(notice: Notice, language: Language, page_url: str = "") -> list[tuple[str, str]]:
    """What more there is to say: names and values."""
    words, alert = _WORDS[language], notice.alert
    told: Mapping[str, Any] = alert.told or {}
    found = [
        (words["rule"], alert.rule),
        (words["posts"], _posts(alert, words)),
        (words["region"], calm(alert.region)),
        (words["product"], calm(alert.product_line)),
        (words["score"], _score(told)),
        (words["summary"], calm(str(told.get("summary", "")))),
        (words["action"], calm(str(told.get("suggested_action", "")))),
        (words["entities"], _entities(told.get("entities", {}), words)),
        (words["first"], shown_time(alert.first_post_ms)),
        (words["id"], alert.id),
        (words["page"], page_url and f"{page_url}#alert={alert.id}"),
    ]
    return [(name, value) for name, value in found if value]


def remarks(notice: Notice, language: Language) -> list[str]:
    """What a reader must not miss: that it is provisional, degraded, or rests on something else."""
    words, alert = _WORDS[language], notice.alert
    found = []
    if alert.phase == "provisional":
        found.append(words["provisional"])
    if alert.degraded_posts:
        found.append(f"{words['degraded']}: {alert.degraded_posts}/{alert.posts}")
    if notice.event == "corrected" and not alert.told:
        found.append(words["wrong"])
    return found


def digest(notices: Sequence[Notice], language: Language) -> tuple[str, list[str]]:
    """Several messages as one: a title, and a line for each of the first MAX_LINES."""
    words = _WORDS[language]
    lines = [" · ".join([headline(one, language), *remarks(one, language)]) for one in notices[:MAX_LINES]]
    if len(notices) > MAX_LINES:
        lines.append(words["more"].format(n=len(notices) - MAX_LINES))
    return words["several"].format(n=len(notices)), lines


def shown_time(at_ms: int) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _about(alert: Alert, words: Mapping[str, str]) -> str:
    return " / ".join(one for one in (calm(alert.entity) or words["none"], calm(alert.event_type)) if one)


def _entities(named: Mapping[str, int], words: Mapping[str, str]) -> str:
    return ", ".join(f"{calm(name) or words['none']} {n}" for name, n in named.items())


def calm(text: str) -> str:
    """A text that came from a post, on one line, with no address that a chat would make a link of."""
    return " ".join(text.replace("://", "：//").split())


def _posts(alert: Alert, words: Mapping[str, str]) -> str:
    return (
        str(alert.posts) if not alert.degraded_posts else f"{alert.posts} ({alert.degraded_posts} {words['degraded']})"
    )


def _score(told: Mapping[str, Any]) -> str:
    return " ".join(str(told[name]) for name in ("sentiment_score", "sentiment_label") if name in told)
