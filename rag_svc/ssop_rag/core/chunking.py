"""Cutting documents into passages: at the largest borders that fit, from paragraphs over sentences to words.

The borders are those of the library: lines, then sentences and words of Unicode (UAX #29), in every script; Chinese
ends of sentences need no space after them. Lengths are in characters (code points).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from semantic_text_splitter import TextSplitter

CHUNKER: Final = f"semantic-text-splitter/{version('semantic-text-splitter')}/1"
"""What cuts, and the version of this module: others may cut elsewhere, so it is part of a document's fingerprint."""
MAX_TITLE_SHARE: Final = 4
"""A title takes at most this fraction (one fourth) of a passage."""
CRUMB_SHARE: Final = 8
"""A piece of at most this fraction (one eighth) of a passage, such as a heading, goes with what follows it."""
_STRETCH_CHARS: Final = 16_384
"""The library takes time that is quadratic in the length of a word: a million letters without a space took 48 s."""
_STRETCH_ENDS: Final = ("\n\n", "\n", "。", ". ", " ")


@dataclass(frozen=True, slots=True)
class Limits:
    """Size of passages. `max_chars` includes the title; at most `overlap_chars` are repeated from the one before."""

    max_chars: int = 480
    overlap_chars: int = 80

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_chars <= self.max_chars // 2 or self.max_chars < 16:
            raise ValueError("a passage has at least 16 characters and at most half of it overlaps")


def split(text: str, title: str = "", limits: Limits = Limits()) -> list[str]:
    """The passages of a document, each `title` on a line of its own (cut if long), then a stretch of the text.

    Every character of the text but white space at cuts is in at least one passage. None for blank text.
    """
    heading = " ".join(title.split())[: limits.max_chars // MAX_TITLE_SHARE].rstrip()
    prefix = f"{heading}\n" if heading else ""
    max_body_chars = limits.max_chars - len(prefix)
    crumb_chars = max_body_chars // CRUMB_SHARE
    capacity = max_body_chars - crumb_chars - 1
    splitter = TextSplitter(capacity, overlap=min(limits.overlap_chars, capacity // 2))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    bodies = (body.strip() for stretch in _stretches(text) for body in splitter.chunks(stretch))
    return [prefix + body for body in _join_crumbs(bodies, crumb_chars)]


def _join_crumbs(bodies: Iterable[str], crumb_chars: int) -> Iterator[str]:
    """The bodies, those of at most `crumb_chars` put before the next one: a heading alone says nothing."""
    crumbs = ""
    for body in bodies:
        joined = f"{crumbs}\n{body}" if crumbs else body
        if len(joined) <= crumb_chars:
            crumbs = joined
        else:
            yield joined
            crumbs = ""
    if crumbs:
        yield crumbs


def _stretches(text: str) -> Iterator[str]:
    """The text in pieces of at most `_STRETCH_CHARS`, cut at the largest border in the second half of each."""
    start = 0
    while len(text) - start > _STRETCH_CHARS:
        half, limit = start + _STRETCH_CHARS // 2, start + _STRETCH_CHARS
        ends = ((text.rfind(border, half, limit), len(border)) for border in _STRETCH_ENDS)
        end = next((found + size for found, size in ends if found >= 0), limit)
        yield text[start:end]
        start = end
    yield text[start:]
