"""A post's text as it stands in a prompt, and the language that it is in.

Posts are data. What identifies a copy only (handles, addresses, blanks, invisible signs) is evened out, so that reposts
ask the mesh the same question and the cache answers it; what could be taken for a part of the prompt is broken.
"""

import re
import unicodedata
from typing import Final, Literal

Language = Literal["en", "zh", "other"]

MAX_PROMPT_CHARS: Final = 600
"""A post is cut there: its first two thirds and its end."""
_ADDRESS: Final = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_MAIL: Final = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+")
_HANDLE: Final = re.compile(r"(?<![\w@])@[\w\-]{1,64}")
_QUOTED: Final = re.compile(r"//@[\w\-]{1,64}\s*[:：]")
_REPOST: Final = re.compile(r"^(?:\s*(?:RT\s+@[\w\-]{1,64}|转发微博|轉發微博)\s*[:：]?)+", re.IGNORECASE)
_BLANKS: Final = re.compile(r"\s+")
# What chat templates put between turns, and what our prompt does.
_CONTROL: Final = re.compile(r"<\|+|\|+>|\[/?INST\]|</?s>|<(?=/?(?:start|end)_of_turn)|```+|\"{3,}", re.IGNORECASE)
# A label such as ours at the beginning of anything could be read as the mesh's own.
_LABEL: Final = re.compile(r"\b(post|tone|answer|system|assistant|user|语气|帖子|回答|系统)(\s*)[:：]", re.IGNORECASE)
_CJK: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LATIN: Final = re.compile(r"[A-Za-z\u00c0-\u024f]+")
_LETTER: Final = re.compile(r"[^\W\d_]")


def even_out(text: str, known: frozenset[str] = frozenset()) -> str:
    """The text without what differs between copies of one post.

    Handles become `@user`, except those in `known` (lower case, without `@`): the tenant's brands are what the post is
    about. Addresses become `http`. Invisible and control characters go; blanks become one.
    """
    text = unicodedata.normalize("NFC", text)
    # Of what is printable nothing is invisible, and no blank is anything but a space.
    if not text.isprintable():
        text = "".join(" " if char.isspace() else char for char in text if char.isspace() or not _is_invisible(char))
    text = _REPOST.sub(" ", _QUOTED.sub(" ", text).lstrip())
    text = _MAIL.sub("<email>", _ADDRESS.sub("http", text))
    text = _HANDLE.sub(lambda found: found[0] if found[0][1:].lower() in known else "@user", text)
    return _BLANKS.sub(" ", text).strip()


def as_data(text: str) -> str:
    """Evened-out text that no longer holds what a prompt is made of: no turn, no fence and no label of ours."""
    text = _CONTROL.sub(" ", text)
    text = _LABEL.sub(r"\1\2 -", text)
    return _cut(_BLANKS.sub(" ", text).strip())


def _cut(text: str) -> str:
    if len(text) <= MAX_PROMPT_CHARS:
        return text
    head = MAX_PROMPT_CHARS * 2 // 3
    return f"{text[:head].rstrip()} ... {text[-(MAX_PROMPT_CHARS - head - 5) :].lstrip()}"


def _is_invisible(char: str) -> bool:
    # Cf: zero width, direction overrides, tags; Cc: control; Cs: halves of pairs; Co and Cn: of no meaning.
    return unicodedata.category(char) in {"Cf", "Cc", "Cs", "Co", "Cn"}


def find_language(text: str) -> Language:
    """`zh` from a fifth of Chinese characters among the words and characters; `en` for Latin letters; else `other`."""
    if text.isascii():
        return "en" if _LATIN.search(text) else "other"
    chinese = len(_CJK.findall(text))
    words = _LATIN.findall(text)
    latin = len(words)
    others = len(_LETTER.findall(text)) - chinese - sum(map(len, words))
    if chinese and chinese >= 0.2 * (chinese + latin) and others <= chinese:
        return "zh"
    if latin and others <= 3 * latin:
        return "en"
    return "other"
