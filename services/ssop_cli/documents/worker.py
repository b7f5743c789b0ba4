"""The process that parses: one document after another from standard input, with bounds on memory and time.

A parser that a hostile document crashes, hangs or bloats takes this process down and nothing else. A request is a line
of JSON (`kind`, `encoding`, `bytes`, `timeout_s`, `memory_bytes`) and so many bytes; a reply is a line with a number,
and so many bytes of JSON: `text`, `title`, `encoding`, or `error`.
"""

import json
import resource
import sys
from typing import Any, BinaryIO, Final

from ssop_cli.documents.extract import MAX_TEXT_CHARS, Extract, ReadError

_OPEN_FILES: Final = 64
_EXTRAS: Final = "pip install 'ssop-mesh[documents]'"


def parse(kind: str, data: bytes, encoding: str) -> Extract:
    """The text of a document. Raises ReadError; anything else that is raised is a fault of a parser."""
    if kind == "pdf":
        from ssop_cli.documents.pdf import read_pdf  # noqa: PLC0415 - only what is needed is loaded

        return read_pdf(data)
    from ssop_cli.documents.decoding import decode  # noqa: PLC0415

    text, guessed = decode(data, encoding=encoding, is_html=kind == "html")
    if len(text) > MAX_TEXT_CHARS:
        raise ReadError(f"it has more than {MAX_TEXT_CHARS} characters of text")
    found = Extract(text)
    if kind == "html":
        from ssop_cli.documents.html import read_html  # noqa: PLC0415

        found = read_html(text)
    elif kind == "markdown":
        from ssop_cli.documents.markdown import read_markdown  # noqa: PLC0415

        found = read_markdown(text)
    return Extract(found.text, found.title, guessed)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the input ends."""
    while line := source.readline():
        request = json.loads(line)
        data = source.read(request["bytes"])
        _limit(request)
        reply = json.dumps(_answer(request, data)).encode()
        sink.write(b"%d\n" % len(reply) + reply)
        sink.flush()


def _answer(request: dict[str, Any], data: bytes) -> dict[str, str]:
    try:
        found = parse(request["kind"], data, request["encoding"])
    except ReadError as error:
        return {"error": str(error)}
    except ImportError as error:
        return {"error": f"the reader is not installed ({error.name}): {_EXTRAS}"}
    except MemoryError:
        return {"error": f"it needs more than {request['memory_bytes'] // 2**20} MiB of memory to read"}
    except RecursionError:
        return {"error": "it is nested too deeply"}
    except Exception as error:  # noqa: BLE001 - a parser may raise anything on a hostile document, and the next one waits
        return {"error": f"it can't be read: {type(error).__name__}"}
    return {"text": found.text, "title": found.title, "encoding": found.encoding}


def _limit(request: dict[str, Any]) -> None:
    """Bound what the next document may take; the parent looks at the clock as well."""
    used_s = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(used_s.ru_utime + used_s.ru_stime + request["timeout_s"]) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], request["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
