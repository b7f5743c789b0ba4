"""Long texts in parts, each a document of its own: the mesh takes documents up to a size, and each is all or none."""

from collections.abc import Iterator
from typing import Final

MAX_PART_BYTES: Final = 65_536
"""UTF-8 bytes of a part's text: some 150 passages, which a slow machine embeds in half a minute."""
_ENDS: Final = ("\n\n", "\n", "。", ". ", " ")


def split_parts(text: str, max_bytes: int = MAX_PART_BYTES) -> Iterator[str]:
    """The text in stretches of at most `max_bytes`, cut at the largest border in the second half of each."""
    while len(text.encode()) > max_bytes:
        limit = len(text.encode()[:max_bytes].decode("utf-8", "ignore"))
        ends = ((text.rfind(border, limit // 2, limit), len(border)) for border in _ENDS)
        end = next((found + size for found, size in ends if found >= 0), limit)
        yield text[:end]
        text = text[end:]
    yield text


def part_id(document_id: str, number: int) -> str:
    """The id of a part, from 1: the document's own for the first one."""
    return document_id if number == 1 else f"{document_id}#{number}"


def read_part(name: str) -> tuple[str, int]:
    """The document that an id is a part of, and the part's number; the id itself and 1 for any other."""
    head, mark, digits = name.rpartition("#")
    is_part = bool(mark) and digits.isascii() and digits.isdecimal() and len(digits) <= 9 and int(digits) > 1
    return (head, int(digits)) if is_part else (name, 1)
