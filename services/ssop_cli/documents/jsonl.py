"""JSON Lines: a document a line. Bad lines are told one by one; the others go on."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from ssop_cli.documents.extract import ReadError

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields that hold id, text and title."""

    id: str = "id"
    text: str = "text"
    title: str = "title"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank: a document, or what is wrong with it. `id` is `NAME#LNUMBER` where it has none."""

    id: str
    text: str = ""
    title: str = ""
    fault: str = ""


def read_lines(file: BinaryIO, name: str, fields: Fields) -> Iterator[Line]:
    """The documents of a file, read as they are taken. Raises ReadError when the file can't be read on."""
    number = 0
    while True:
        try:
            data = file.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise ReadError(f"can't be read: {error.strerror}") from None
        if not data:
            return
        number += 1
        where = f"{name}#L{number}"
        if len(data) > MAX_LINE_BYTES:
            while data and not data.endswith(b"\n"):
                data = file.readline(MAX_LINE_BYTES)
            yield Line(where, fault=f"the line is longer than {MAX_LINE_BYTES // 2**20} MiB")
            continue
        if number == 1:
            data = data.removeprefix(_BOM)
        if data.strip():
            yield _read_line(data, where, fields)


def _read_line(data: bytes, where: str, fields: Fields) -> Line:
    try:
        found = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        return Line(where, fault="the line is not UTF-8")
    except RecursionError:
        return Line(where, fault="the line is nested too deeply")
    except ValueError as error:
        column = getattr(error, "colno", 0)
        return Line(where, fault=f"the line is no JSON (column {column})" if column else "the line is no JSON")
    if not isinstance(found, Mapping):
        return Line(where, fault="the line is no JSON object")
    return _read_object(found, where, fields)


def _read_object(found: Mapping[str, Any], where: str, fields: Fields) -> Line:
    name = found.get(fields.id, where)
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        return Line(where, fault=f"'{fields.id}' is neither a text nor a whole number")
    text, title = found.get(fields.text), found.get(fields.title) or ""
    if not isinstance(text, str):
        return Line(where, fault=f"it has no '{fields.text}' that is a text")
    if not isinstance(title, str):
        return Line(where, fault=f"'{fields.title}' is no text")
    try:
        name = str(name)
        "".join((name, text, title)).encode()
    except ValueError:
        # A number of more digits than Python turns into text, or half of a surrogate pair.
        return Line(where, fault="it holds characters or numbers that are no text")
    return Line(name, text, title)
