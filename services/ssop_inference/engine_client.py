"""The engine's own HTTP endpoint on its private unix socket, for what its Python binding does not offer."""

import http.client
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ssop_inference.core.prompt import ChatMessage

_TIMEOUT_S: Final = 10.0


class EngineError(Exception):
    """The engine refused or did not answer; the text is the engine's."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class EngineClient:
    """Blocking calls, each on its own connection (the engine drops kept ones), so it may be used by many threads."""

    def __init__(self, socket_path: Path, api_key: str) -> None:
        self._path = socket_path
        self._headers = {
            "authorization": f"Bearer {api_key}",
            "content-type": "application/json",
            "connection": "close",
        }

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The prompt that the model's chat template makes of the messages. Raises EngineError."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        body = {"messages": turns, "chat_template_kwargs": {"enable_thinking": False}}
        return str(self._post("/apply-template", body)["prompt"])

    def tokenize(self, text: str, *, parse_special: bool, is_begun: bool = False) -> list[int]:
        """Token ids, with those that the model wants at the start unless it `is_begun`. Raises EngineError."""
        body = {"content": text, "add_special": not is_begun, "parse_special": parse_special}
        return list(self._post("/tokenize", body)["tokens"])

    def busy_slots(self) -> int:
        """How many slots the engine itself says are in use. Raises EngineError."""
        return sum(slot["is_processing"] for slot in self._request("GET", "/slots", None))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._request("POST", path, json.dumps(body).encode())
        if not isinstance(answer, dict):
            raise EngineError(f"{path} answered with {type(answer).__name__}")
        return answer

    def _request(self, method: str, path: str, body: bytes | None) -> Any:
        connection = _UnixConnection(self._path)
        try:
            connection.request(method, path, body, self._headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"{path}: {error}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise EngineError(f"{path} answered {response.status}")
        try:
            return json.loads(data)
        except ValueError as error:
            raise EngineError(f"{path} answered with no JSON") from error
