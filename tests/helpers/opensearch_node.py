"""A real OpenSearch node for tests, which can be killed and started again on what it left on disk."""

from pathlib import Path
from typing import Any, Final

import httpx

from helpers.java_server import JAVA, JavaServer
from helpers.maven import find_classpath

_PROJECT: Final = Path(__file__).parent / "opensearch"


class OpenSearchNode(JavaServer):
    """One node in a folder of its own; use it in `with`."""

    def __init__(self) -> None:
        super().__init__("opensearch")
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens; the same after it was started again."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        ready = self.folder / "port"
        ready.unlink(missing_ok=True)
        command = [*JAVA, "-Xms256m", "-Xmx512m", "-cp", find_classpath(_PROJECT)]
        self.launch([*command, str(_PROJECT / "OpenSearchNode.java"), str(self.folder), str(self._port)], ready.exists)
        self._port = int(ready.read_text())

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request, and its reply as JSON."""
        reply = httpx.request(method, f"{self.url}{path}", json=body, timeout=30)
        reply.raise_for_status()
        return reply.json()
