"""A model server that costs next to nothing: python null_upstream.py PORT [PIECES]. All at once, whatever is asked.

It speaks HTTP/1.1 with kept connections, and as much of OpenAI's chat API as proxies ask for.
"""

import asyncio
import json
import sys
from typing import Final

PIECES: Final = int(sys.argv[2]) if __name__ == "__main__" and len(sys.argv) > 2 else 20
_HEAD: Final = {"id": "c-1", "created": 1, "model": "m"}
_USAGE: Final = {"prompt_tokens": 9, "completion_tokens": PIECES, "total_tokens": 9 + PIECES}


def _chunk(delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**_HEAD, "object": "chat.completion.chunk", "choices": [choice]}


def _page(body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def _stream() -> bytes:
    events = [_chunk({"role": "assistant", "content": ""}), *(_chunk({"content": "tok "}) for _ in range(PIECES))]
    events += [_chunk({}, "stop"), {**_chunk({}), "choices": [], "usage": _USAGE}]
    texts = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
    body = b"".join(f"{len(text):x}\r\n{text}\r\n".encode() for text in texts) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + body


_MESSAGE: Final = {"role": "assistant", "content": "tok " * PIECES}
_WHOLE: Final = _page(
    {
        **_HEAD,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
)
_STREAM: Final = _stream()
_MODELS: Final = _page({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "nobody"}]})
_OK: Final = _page({})


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            body = await reader.readexactly(size) if size else b""
            if head.startswith(b"post") and b"/chat/completions" in head:
                writer.write(_STREAM if json.loads(body).get("stream") else _WHOLE)
            else:
                writer.write(_MODELS if b"/models" in head.split(b"\r\n", 1)[0] else _OK)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(_serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
