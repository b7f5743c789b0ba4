"""Telling people: what robots and webhooks are sent, and what their answers mean."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from helpers.opinion_posts import START_MS, TENANT, make_facts
from helpers.robots import (
    FEISHU_BAD_SIGN,
    FEISHU_BUSY,
    FEISHU_NO_KEY,
    WECOM_BUSY,
    WECOM_NO_KEY,
    WECOM_TOO_LONG,
    Answer,
    Receiver,
    feishu,
    run_receiver,
    signed,
    wecom,
)
from ssop_chassis.settings import SettingsError
from ssop_opinion.alert_store import Message
from ssop_opinion.channels import check_routes, make_notifier
from ssop_opinion.core.alert_book import AlertBook
from ssop_opinion.core.alert_policy import AlertPolicy, Route
from ssop_opinion.core.alerts import Notice
from ssop_opinion.core.rules import DEFAULT_RULES
from ssop_opinion.notifiers.notifier import BrokenError, LaterError, Notifier, RefusedError, check_url, open_client
from ssop_opinion.settings import ChannelSettings

KEY = "693a91f6-7xxx"
SECRET = "a secret of more than 16 bytes"
NOW_S = START_MS // 1_000
Kind = Literal["wecom", "feishu", "webhook"]


def make_message(number: int = 1, **changes: Any) -> Message:
    book = AlertBook(TENANT, AlertPolicy(rules=DEFAULT_RULES[:1]))
    values = {name: value for name, value in changes.items() if name in {"main_entity", "summary", "event_type"}}
    (notice,) = book.judge(make_facts(str(number), is_final=changes.get("is_final", True), **values), START_MS)
    return Message(f"{notice.id}@c", "c", TENANT, notice, 0, START_MS, START_MS)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    # The certificates of the system take longer to read than all tests together.
    async with httpx.AsyncClient(verify=False) as found:
        yield found


def make(kind: Kind, receiver: Receiver, folder: Path, client: httpx.AsyncClient, **changes: Any) -> Notifier:
    (folder / "url").write_text(receiver.url)
    (folder / "secret").write_text(SECRET)
    channel = ChannelSettings(kind=kind, url_file=folder / "url", secret_file=folder / "secret", **changes)
    return make_notifier(channel, client, "https://opinion.example/opinion")


async def test_wecom_is_sent_markdown_that_says_it_all(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with run_receiver(wecom(KEY), f"/cgi-bin/webhook/send?key={KEY}") as receiver:
        await make("wecom", receiver, tmp_path, client).tell([make_message(is_final=False)], START_MS)
        content = receiver.taken[0].document["markdown"]["content"]
    for part in ("critical", "X200 / failure", "grave", "provisional", "phones", "https://opinion.example/opinion"):
        assert part in content


async def test_wecom_in_chinese(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with run_receiver(wecom(KEY), f"/cgi-bin/webhook/send?key={KEY}") as receiver:
        await make("wecom", receiver, tmp_path, client, language="zh").tell([make_message()], START_MS)
        assert "[严重] 新告警" in receiver.taken[0].document["markdown"]["content"].replace("［", "[").replace(
            "］", "]"
        )


HOSTILE = '<@all> [gift](http://evil.example) **x** `y` <font color="info">z</font>\n# head'


async def test_a_post_brings_no_markup_mention_or_link_to_wecom(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with run_receiver(wecom(KEY), f"/cgi-bin/webhook/send?key={KEY}") as receiver:
        notifier = make("wecom", receiver, tmp_path, client)
        for messages in ([make_message(main_entity=HOSTILE, summary=HOSTILE)], [make_message(1, summary=HOSTILE)] * 2):
            await notifier.tell(messages, START_MS)
        for told in receiver.taken:
            content = told.document["markdown"]["content"]
            assert "<@" not in content
            assert "](http://evil" not in content
            assert "http://evil" not in content
            assert '<font color="info"' not in content


async def test_a_post_brings_no_mention_to_feishu(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with run_receiver(feishu(SECRET, lambda: NOW_S), "/open-apis/bot/v2/hook/k") as receiver:
        message = make_message(main_entity='<at user_id="all">x</at> http://evil.example')
        await make("feishu", receiver, tmp_path, client).tell([message], START_MS)
        (lines,) = [one["content"] for one in receiver.taken[0].document["content"]["post"].values()]
    assert {part["tag"] for line in lines for part in line} <= {"text", "a"}
    assert b"http://evil" not in receiver.taken[0].body


@pytest.mark.parametrize("kind", ["wecom", "feishu"])
async def test_many_messages_are_one_within_the_robots_bounds(
    kind: Kind, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    judge, path = (
        (wecom(KEY), f"/cgi-bin/webhook/send?key={KEY}")
        if kind == "wecom"
        else (feishu(SECRET, lambda: NOW_S), "/open-apis/bot/v2/hook/k")
    )
    async with run_receiver(judge, path) as receiver:
        messages = [make_message(number, main_entity="机" * 64, summary="长" * 280) for number in range(50)]
        await make(kind, receiver, tmp_path, client, language="zh").tell(messages, START_MS)
        assert len(receiver.taken) == 1
        assert "另有 35 条" in receiver.taken[0].body.decode()


async def test_a_webhook_is_signed_and_names_its_message(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with run_receiver(signed(SECRET, lambda: NOW_S), "/hook") as receiver:
        message = make_message(is_final=False)
        await make("webhook", receiver, tmp_path, client).tell([message], START_MS)
        (told,) = receiver.taken
    assert told.headers["idempotency-key"] == message.id
    body = told.document
    assert (body["event"], body["severity"], body["entity"], body["is_provisional"]) == (
        "opened", "critical", "X200", True,
    )  # fmt: skip


WECOM = [
    (Answer(WECOM_BUSY), LaterError, "RATE_LIMITED", 60_000),
    (Answer({"errcode": -1, "errmsg": "system busy"}), LaterError, "SYSTEM_BUSY", None),
    (Answer(WECOM_NO_KEY), BrokenError, "KEY_INVALID", None),
    (Answer(WECOM_TOO_LONG), RefusedError, "ERRCODE_40058", None),
    (Answer(b"<html>proxy</html>"), LaterError, "REPLY_UNKNOWN", None),
    (Answer(b"x" * 100_000), LaterError, "REPLY_TOO_LARGE", None),
]
FEISHU = [
    (Answer(FEISHU_BUSY), LaterError, "RATE_LIMITED", 60_000),
    (Answer(FEISHU_BUSY, 400, {"retry-after": "7"}), LaterError, "RATE_LIMITED", 7_000),
    (Answer(FEISHU_BAD_SIGN), BrokenError, "SIGNATURE_REFUSED", None),
    (Answer(FEISHU_NO_KEY, 400), BrokenError, "KEY_INVALID", None),
    (Answer({"code": 9499, "msg": "Bad Request", "data": {}}, 400), RefusedError, "HTTP_400", None),
]
HTTP = [
    (Answer(b"", 429, {"retry-after": "3"}), LaterError, "HTTP_429", 3_000),
    (Answer(b"", 503), LaterError, "HTTP_503", None),
    (Answer(b"", 401), BrokenError, "HTTP_401", None),
    (Answer(b"", 302, {"location": "http://127.0.0.1:1/"}), BrokenError, "HTTP_302", None),
    (Answer(b"", 413), RefusedError, "HTTP_413", None),
    (Answer(hang=True), LaterError, "TIMEOUT", None),
]
CASES: list[tuple[Kind, Answer, type[Any], str, int | None]] = [
    *[("wecom", *one) for one in [*WECOM, *HTTP]],
    *[("feishu", *one) for one in [*FEISHU, *HTTP]],
    *[("webhook", *one) for one in HTTP],
]


@pytest.mark.parametrize(("kind", "answer", "fault", "reason", "wait_ms"), CASES)
async def test_what_an_answer_means(
    kind: Kind, answer: Answer, fault: type[Any], reason: str, wait_ms: int | None, tmp_path: Path,
    client: httpx.AsyncClient,
) -> None:  # fmt: skip
    async with run_receiver(wecom(KEY), f"/cgi-bin/webhook/send?key={KEY}") as receiver:
        receiver.answers = [answer]
        timeout_ms = 300 if answer.hang else 30_000
        with pytest.raises(fault) as caught:
            await make(kind, receiver, tmp_path, client, timeout_ms=timeout_ms).tell([make_message()], START_MS)
    assert caught.value.reason == reason
    assert getattr(caught.value, "retry_after_ms", None) == wait_ms
    assert KEY not in str(caught.value)


async def test_the_client_of_channels_follows_no_redirect() -> None:
    async with open_client() as found:
        assert not found.follow_redirects


async def test_a_receiver_that_is_gone_is_away(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with run_receiver(wecom(KEY), f"/send?key={KEY}") as receiver:
        notifier = make("wecom", receiver, tmp_path, client)
    with pytest.raises(LaterError) as caught:
        await notifier.tell([make_message()], START_MS)
    assert caught.value.reason == "UNREACHABLE"


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example/x", "ftp://host/x", "file:///etc/passwd", "https://", "https://host:99999/", "nothing", ""],
)
def test_an_address_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        check_url(url, is_plain_allowed=False)


def test_plain_http_is_taken_on_this_machine_or_where_allowed() -> None:
    assert check_url("http://127.0.0.1:1/x", is_plain_allowed=False)
    assert check_url("http://jira.internal/x", is_plain_allowed=True)


async def test_a_mended_file_is_taken_without_a_restart(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with run_receiver(wecom(KEY), "/cgi-bin/webhook/send?key=wrong") as receiver:
        notifier = make("wecom", receiver, tmp_path, client)
        with pytest.raises(BrokenError):
            await notifier.tell([make_message()], START_MS)
        (tmp_path / "url").write_text(receiver.url.replace("wrong", KEY))
        await notifier.tell([make_message()], START_MS)
        (tmp_path / "url").unlink()
        with pytest.raises(BrokenError) as caught:
            await notifier.tell([make_message()], START_MS)
    assert caught.value.reason == "FILE_UNUSABLE"


def test_tenants_may_use_only_the_channels_that_are_theirs(tmp_path: Path) -> None:
    channel = ChannelSettings(kind="wecom", url_file=tmp_path / "u", tenants=["other"])
    policy = AlertPolicy(routes=(Route(channel="ops"), Route(channel="none")))
    with pytest.raises(SettingsError) as caught:
        check_routes({TENANT: policy}, {"ops": channel})
    assert "not for this tenant" in str(caught.value)
    assert "no channel 'none'" in str(caught.value)


def test_the_same_message_has_the_same_id_and_another_has_not() -> None:
    one: Callable[[], Notice] = lambda: make_message().notice  # noqa: E731
    assert one().id == one().id
    assert replace(one(), event="grown").id != one().id
