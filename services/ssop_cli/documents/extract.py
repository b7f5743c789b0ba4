"""What every reader gives and how it fails. No library is imported here."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["text", "markdown", "html", "pdf", "jsonl"]
KINDS: Final[dict[str, Kind]] = {
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""Kinds by the end of a file's name, in lower case. What ends otherwise is taken only when it is named itself."""
MAX_TEXT_CHARS: Final = 16_000_000
"""Longest text of one file; more is refused, since nobody would wait for its passages."""


class ReadError(Exception):
    """A document can't be read; the text says why, for people, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The text of a document. `encoding` is set where it was guessed."""

    text: str
    title: str = ""
    encoding: str = ""


def kind_of(name: str, head: bytes) -> Kind:
    """The kind of a file by its name, else by its first bytes."""
    _, dot, ending = name.rpartition(".")
    known = KINDS.get(dot + ending.lower())
    if known is not None:
        return known
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if start.startswith(b"%pdf-"):
        return "pdf"
    return "html" if start.startswith((b"<!doctype html", b"<html")) else "text"
