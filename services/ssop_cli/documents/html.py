"""HTML to text: what a reader sees of the main part, a line for each block."""

import re
from typing import Any, Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser

from ssop_cli.documents.extract import Extract

_UNSEEN: Final = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "embed", "canvas", "audio", "video",
    "nav", "footer", "aside", "form", "button", "select", "textarea", "dialog", "[hidden]", "[aria-hidden=true]",
]  # fmt: skip
_BLOCKS: Final = frozenset({
    "address", "article", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "figcaption", "figure",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "li", "main", "ol", "p", "pre", "section", "summary",
    "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
})  # fmt: skip
_PARAGRAPHS: Final = frozenset({
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "pre", "blockquote", "section", "article",
})  # fmt: skip
_SPACE: Final = re.compile(r"[ \t\r\n\f\xa0\u200b]+")
_MAX_CLIMB: Final = 256
"""Ancestors that are looked at for each text; a page that is deeper is no page for people."""
_MIN_MAIN_CHARS: Final = 200


def read_html(text: str) -> Extract:
    """The text of an HTML document; `main` or `article` alone where they hold it. Its title is its `title`, or `h1`."""
    tree: Any = LexborHTMLParser(text)
    heading = tree.css_first("title") or tree.css_first("h1")
    title = _SPACE.sub(" ", heading.text()).strip() if heading is not None else ""
    for selector in _UNSEEN:
        for node in tree.css(selector):
            node.decompose()
    for selector in ("main", "article"):
        found = tree.css(selector)
        if len(found) == 1 and len(body := _text_of(found[0])) >= _MIN_MAIN_CHARS:
            return Extract(body, title)
    root = tree.body or tree.root
    return Extract(_text_of(root) if root is not None else "", title)


def _text_of(root: Any) -> str:
    parts: list[str] = []
    last = _Place(0, 0, 0)
    for node in root.traverse(include_text=True):
        if node.tag == "br":
            parts.append("\n")
            continue
        if not node.is_text_node:
            continue
        text = _SPACE.sub(" ", node.text_content or "")
        if not text.strip():
            # A space between two words, or between two blocks, where it says nothing.
            if parts and not parts[-1].endswith((" ", "\n")):
                parts.append(" ")
            continue
        place = _place_of(node)
        if parts and place.block != last.block:
            parts.append(_between(last, place))
            text = text.lstrip()
        parts.append(text)
        last = place
    lines = (line.strip() for line in "".join(parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Place(NamedTuple):
    """Identities of the block, the table's row and the paragraph that hold a text; 0 is none."""

    block: int
    row: int
    paragraph: int


def _place_of(node: Any) -> _Place:
    block = row = 0
    parent = node.parent
    for _ in range(_MAX_CLIMB):
        if parent is None:
            break
        tag = parent.tag
        if not block and tag in _BLOCKS:
            block = parent.mem_id
        if not row and tag == "tr":
            row = parent.mem_id
        if tag in _PARAGRAPHS:
            return _Place(block, row, parent.mem_id)
        parent = parent.parent
    return _Place(block, row, block)


def _between(last: _Place, place: _Place) -> str:
    if place.row and place.row == last.row:
        return " | "
    return "\n" if place.paragraph == last.paragraph else "\n\n"
