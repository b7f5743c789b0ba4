"""Receivers of alerts on loopback that answer as the real ones do: WeCom and Feishu robots, and a signed webhook."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

WECOM_BUSY: Final = {
    "errcode": 45009,
    "errmsg": "api freq out of limit, hint: [1795000000120331], from ip: 127.0.0.1,"
    " more info at https://open.work.weixin.qq.com/devtool/query?e=45009",
}
WECOM_NO_KEY: Final = {
    "errcode": 93000,
    "errmsg": "invalid webhook url, hint: [1795000000120332], from ip: 127.0.0.1,"
    " more info at https://open.work.weixin.qq.com/devtool/query?e=93000",
}
WECOM_TOO_LONG: Final = {
    "errcode": 40058,
    "errmsg": "markdown.content exceed max length 4096. invalid Request Parameter, hint: [1795000000120333],"
    " from ip: 127.0.0.1, more info at https://open.work.weixin.qq.com/devtool/query?e=40058",
}
FEISHU_BUSY: Final = {
    "code": 11232,
    "data": {},
    "msg": "frequency limited psm[lark.oapi.app_platform_runtime]appID[1500]",
}
FEISHU_BAD_SIGN: Final = {
    "code": 19021,
    "data": {},
    "msg": "sign match fail or timestamp is not within one hour from current time",
}
FEISHU_NO_KEY: Final = {"code": 19001, "data": {}, "msg": "param invalid: incoming webhook access token invalid"}


@dataclass(frozen=True)
class Answer:
    """What a receiver answers. `hang`: nothing, until the client goes."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False


@dataclass
class Told:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """Its JSON."""
        return json.loads(self.body)


class Receiver:
    """Judges requests. `answers` come first, one a request; after them those of `judge`."""

    def __init__(self, judge: Callable[[Told], Answer]) -> None:
        self.told: list[Told] = []
        self.answers: list[Answer] = []
        self.taken: list[Told] = []
        """Requests that were answered as good."""
        self.url = ""
        self._judge = judge

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                told = Told(head[0].split(" ")[1], headers, body)
                self.told.append(told)
                scripted = bool(self.answers)
                answer = self.answers.pop(0) if scripted else self._judge(told)
                if answer.hang:
                    await reader.read()
                    return
                if answer.status == 200 and (not scripted or _is_good(answer.body)):
                    self.taken.append(told)
                writer.write(_encode(answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _is_good(body: Any) -> bool:
    return not isinstance(body, dict) or not (body.get("errcode") or body.get("code"))


def _encode(answer: Answer) -> bytes:
    data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(data)), **answer.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer.status} Whatever\r\n{lines}\r\n".encode() + data


@asynccontextmanager
async def run_receiver(judge: Callable[[Told], Answer], path: str) -> AsyncIterator[Receiver]:
    """A receiver, until the block ends; `url` is its address with the path."""
    receiver = Receiver(judge)
    writers: set[asyncio.StreamWriter] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        await receiver.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
    try:
        yield receiver
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


def wecom(key: str) -> Callable[[Told], Answer]:
    """A WeCom robot with a key: markdown of at most 4,096 bytes."""

    def judge(told: Told) -> Answer:
        if told.path != f"/cgi-bin/webhook/send?key={key}":
            return Answer(WECOM_NO_KEY)
        document = told.document
        if document.get("msgtype") != "markdown":
            return Answer({"errcode": 40008, "errmsg": "invalid message type"})
        if len(document["markdown"]["content"].encode()) > 4_096:
            return Answer(WECOM_TOO_LONG)
        return Answer({"errcode": 0, "errmsg": "ok"})

    return judge


def feishu(secret: str, now_s: Callable[[], int]) -> Callable[[Told], Answer]:
    """A Feishu robot whose messages must be signed, within an hour."""

    def judge(told: Told) -> Answer:
        document = told.document
        if not told.path.startswith("/open-apis/bot/v2/hook/"):
            return Answer(FEISHU_NO_KEY, 400)
        stamp = str(document.get("timestamp", ""))
        wanted = base64.b64encode(hmac.new(f"{stamp}\n{secret}".encode(), b"", hashlib.sha256).digest()).decode()
        if document.get("sign") != wanted or abs(int(stamp) - now_s()) > 3_600:
            return Answer(FEISHU_BAD_SIGN)
        if len(told.body) > 20_480 or document.get("msg_type") != "post":
            return Answer({"code": 9499, "msg": "Bad Request", "data": {}}, 400)
        return Answer({"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"})

    return judge


def signed(secret: str, now_s: Callable[[], int]) -> Callable[[Told], Answer]:
    """A receiver that checks signature and age, and takes each nonce once."""
    nonces: set[str] = set()

    def judge(told: Told) -> Answer:
        stamp, nonce = (told.headers.get(f"x-ssop-{name}", "0") for name in ("timestamp", "nonce"))
        if nonce in nonces:
            return Answer(b"", 401)
        nonces.add(nonce)
        mac = hmac.new(secret.encode(), f"v1.{stamp}.{nonce}.".encode() + told.body, hashlib.sha256).hexdigest()
        if told.headers.get("x-ssop-signature") != f"v1={mac}" or abs(int(stamp) - now_s()) > 300:
            return Answer(b"", 401)
        return Answer(b"", 200)

    return judge
