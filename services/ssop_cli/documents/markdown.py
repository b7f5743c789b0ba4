"""Markdown to text: what a reader sees, without the marks, the addresses of links, and HTML."""

import re
from collections.abc import Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ssop_cli.documents.extract import Extract

# Metadata in YAML, as site generators have it, before everything else.
_FRONT: Final = re.compile(r"\A---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TITLE: Final = re.compile(r"^title:[ \t]*[\"']?(.{1,300}?)[\"']?[ \t]*$", re.MULTILINE)
_BLOCKS: Final = frozenset({
    "paragraph_close", "heading_close", "bullet_list_close", "ordered_list_close", "table_close",
})  # fmt: skip


def read_markdown(text: str) -> Extract:
    """The text of a Markdown document; its title is the one of its metadata, or its first heading."""
    front = _FRONT.match(text)
    title = ""
    if front is not None:
        named = _TITLE.search(front[1])
        title = named[1].strip() if named else ""
        text = text[front.end() :]
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    lines: list[str] = []
    for number, token in enumerate(tokens):
        before = tokens[number - 1].type if number else ""
        if token.type == "inline":
            line = _inline(token.children or ())
            if before == "heading_open" and not title:
                title = line
            if before in {"th_open", "td_open"}:
                lines.append(("" if lines and lines[-1].endswith("\n") else " | ") + line)
            else:
                lines.append(("- " if _is_item(tokens, number) else "") + line + "\n")
        elif token.type in {"fence", "code_block"}:
            lines.append(token.content.rstrip("\n") + "\n\n")
        elif (token.type in _BLOCKS and not token.hidden) or token.type == "tr_close":
            lines.append("\n")
    return Extract("".join(lines).strip(), title)


def _is_item(tokens: Sequence[Token], number: int) -> bool:
    return number >= 2 and tokens[number - 1].type == "paragraph_open" and tokens[number - 2].type == "list_item_open"


def _inline(children: Sequence[Token]) -> str:
    parts: list[str] = []
    for child in children:
        if child.type in {"text", "code_inline", "text_special"}:
            parts.append(child.content)
        elif child.type == "softbreak":
            parts.append(" ")
        elif child.type == "hardbreak":
            parts.append("\n")
        elif child.type == "image":
            parts.append(_inline(child.children or ()))
    return "".join(parts)
