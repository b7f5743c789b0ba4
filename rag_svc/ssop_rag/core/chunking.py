"""Cutting documents into passages: at paragraphs where it can, at sentences where it must, inside words last.

Lengths are in characters (code points). English and Chinese sentence ends are known; other scripts fall back to
line ends and spaces.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_TITLE_SHARE: Final = 4
"""A title takes at most this fraction (one fourth) of a passage."""

# A sentence ends after its closing quotes and brackets. Chinese ends need no space after them; English ones do, so
# that "3.14" and "example.org" stay whole.
_SENTENCE_END: Final = re.compile(r"[。！？；…]+[”’」』）】》]*\s*|[.!?]+[\"'”’)\]]*(?:\s+|$)|\n+")
_PARAGRAPH_END: Final = re.compile(r"\n[ \t]*\n\s*")
_SOFT_BREAK: Final = re.compile(r"[，、,:：;]\s*|\s+")


@dataclass(frozen=True, slots=True)
class Limits:
    """Size of passages. `max_chars` includes the title; `overlap_chars` is repeated from the passage before."""

    max_chars: int = 480
    overlap_chars: int = 80

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_chars <= self.max_chars // 2 or self.max_chars < 16:
            raise ValueError("a passage has at least 16 characters and at most half of it overlaps")


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence, or a piece of one that was too long: `text[start:end]`."""

    start: int
    end: int
    ends_paragraph: bool


def split(text: str, title: str = "", limits: Limits = Limits()) -> list[str]:
    """The passages of a document, each `title` on a line of its own (cut if long), then a stretch of the text.

    Every character of the text but white space at cuts is in at least one passage. None for blank text.
    """
    heading = " ".join(title.split())[: limits.max_chars // MAX_TITLE_SHARE].rstrip()
    prefix = f"{heading}\n" if heading else ""
    max_body_chars = limits.max_chars - len(prefix)
    overlap_chars = min(limits.overlap_chars, max_body_chars // 2)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    bodies = (
        text[start:end].strip() for start, end in _pack(_units(text, max_body_chars), max_body_chars, overlap_chars)
    )
    return [prefix + body for body in bodies if body]


def _units(text: str, max_chars: int) -> list[_Unit]:
    units: list[_Unit] = []
    position = 0
    for paragraph_end in [*(match.end() for match in _PARAGRAPH_END.finditer(text)), len(text)]:
        ends = [match.end() for match in _SENTENCE_END.finditer(text, position, paragraph_end)]
        for end in [*ends, paragraph_end]:
            while end - position > max_chars:
                cut = _soft_cut(text, position, max_chars)
                units.append(_Unit(position, cut, ends_paragraph=False))
                position = cut
            if end > position:
                units.append(_Unit(position, end, ends_paragraph=end == paragraph_end))
                position = end
    return units


def _soft_cut(text: str, start: int, max_chars: int) -> int:
    """Where to cut a sentence that is too long: after the last comma or space of its second half, else at the limit."""
    breaks = [match.end() for match in _SOFT_BREAK.finditer(text, start + max_chars // 2, start + max_chars)]
    return breaks[-1] if breaks else start + max_chars


def _pack(units: list[_Unit], max_chars: int, overlap_chars: int) -> list[tuple[int, int]]:
    """Spans of whole units, each at most `max_chars`; one ends early at a paragraph when it is at least half full."""
    spans: list[tuple[int, int]] = []
    first = 0
    while first < len(units):
        start = units[first].start
        last = first
        while last + 1 < len(units) and units[last + 1].end - start <= max_chars:
            is_half_full = units[last].end - start >= max_chars // 2
            if units[last].ends_paragraph and is_half_full:
                break
            last += 1
        spans.append((start, units[last].end))
        first = _next_first(units, first, last, max_chars, overlap_chars)
    return spans


def _next_first(units: list[_Unit], first: int, last: int, max_chars: int, overlap_chars: int) -> int:
    """The unit that the next span begins with. Nothing is repeated across paragraphs, nor a whole span."""
    following = last + 1
    if following >= len(units) or units[last].ends_paragraph:
        return following
    begin = following
    while (
        begin - 1 > first
        and units[last].end - units[begin - 1].start <= overlap_chars
        and units[following].end - units[begin - 1].start <= max_chars
        and not units[begin - 1].ends_paragraph
    ):
        begin -= 1
    return begin
