"""PDF to text, page by page; lines that were broken for the page are joined again."""

import re
from typing import Any, Final

import pypdfium2

from ssop_cli.documents.extract import MAX_TEXT_CHARS, Extract, ReadError

MAX_PAGES: Final = 5_000
# What PDFium puts where a word is broken at the end of a line.
_BROKEN_WORD: Final = re.compile("[\x02\ufffe\xad]\r?\n?")
# Glyphs without a letter come as control characters.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CJK: Final = r"\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f"
# Where a line was broken; nothing stands between two characters of a script without spaces.
_BREAK: Final = "\v"
_CJK_BREAK: Final = re.compile(rf"(?<=[{_CJK}]){_BREAK}(?=[{_CJK}])")
_SENTENCE_END: Final = ".!?:;。！？；：…\"'”’）)"
_FULL_SHARE: Final = 0.6
"""A line that is shorter than this share of the longest one was ended, not broken."""


def read_pdf(data: bytes) -> Extract:
    """The text of a PDF. Raises ReadError where there is none, or a password is needed."""
    try:
        document: Any = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise ReadError(_explain(str(error))) from None
    try:
        count = len(document)
        if count > MAX_PAGES:
            raise ReadError(f"it has {count} pages; at most {MAX_PAGES} are read")
        title = str(document.get_metadata_dict().get("Title", "")).strip()
        pages: list[str] = []
        chars = 0
        for number in range(count):
            text = _read_page(document, number)
            chars += len(text)
            if chars > MAX_TEXT_CHARS:
                raise ReadError(f"it has more than {MAX_TEXT_CHARS} characters of text")
            pages.append(text)
    finally:
        document.close()
    whole = "\n\n".join(page for page in pages if page)
    if not whole:
        raise ReadError("it has no text: the pages are pictures")
    return Extract(whole, title)


def _explain(fault: str) -> str:
    if "password" in fault.lower():
        return "it needs a password"
    return "it is no PDF that can be read"


def _read_page(document: Any, number: int) -> str:
    try:
        page = document[number]
        try:
            text: str = page.get_textpage().get_text_range()
        finally:
            page.close()
    except pypdfium2.PdfiumError:
        raise ReadError(f"page {number + 1} can't be read") from None
    return _join_lines(_CONTROL.sub("", _BROKEN_WORD.sub("", text).replace("\r\n", "\n")))


def _join_lines(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.split("\n")]
    longest = max(map(len, lines), default=0)
    parts: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        is_broken = bool(following) and len(line) > _FULL_SHARE * longest and not line.endswith(tuple(_SENTENCE_END))
        parts.append(line + (_BREAK if is_broken else "\n"))
    return _CJK_BREAK.sub("", "".join(parts)).replace(_BREAK, " ").strip()
