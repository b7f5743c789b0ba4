"""Words for the full-text index of SQLite, which knows no Chinese: runs of Han, Kana and Hangul become pairs.

A run of n characters is written as its n-1 pairs and its last character, so that a word of two characters is one
term, a longer one a phrase of pairs, and a single character the beginning of a term.
"""

import re
from collections.abc import Iterator
from typing import Final

MAX_QUERY_TERMS: Final = 32
_RUN: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_SPLIT: Final = re.compile(f"([{_RUN}]+)")
_WORD: Final = re.compile(r"\w+")


def index_text(text: str) -> str:
    """The text as it is indexed."""
    return " ".join(term for is_run, part in _parts(text) for term in (_pairs(part) if is_run else (part,)))


def match_query(text: str) -> str:
    """A query of FTS5 that all words of a search must match; empty when it has none."""
    terms: list[str] = []
    for is_run, part in _parts(text):
        if not is_run:
            terms += [f'"{word}"' for word in _WORD.findall(part)]
        elif len(part) == 1:
            terms.append(f'"{part}"*')
        else:
            terms.append('"' + " ".join(_pairs(part)[:-1]) + '"')
    return " ".join(terms[:MAX_QUERY_TERMS])


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    for index, part in enumerate(_SPLIT.split(text)):
        if part:
            yield bool(index % 2), part


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] + [run[-1]]
