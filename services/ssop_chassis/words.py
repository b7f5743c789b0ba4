"""What a prefetch counts: words, and characters of scripts that are written without spaces.

A token is a run of characters that are neither white space nor of such a script, or one character of such a script
(Chinese, Japanese, Korean). So the count needs no tokenizer, is the same in every process, and is at most that of a
model's tokenizer for text with spaces.
"""

import re
from itertools import islice
from typing import Final

_SINGLE: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN: Final = re.compile(rf"([{_SINGLE}])|[^\s{_SINGLE}]+")
_WHOLE_CHARS: Final = 2


def count_tokens(text: str) -> int:
    """Tokens of a text."""
    return sum(1 for _ in _TOKEN.finditer(text))


def take_tokens(text: str, count: int) -> str:
    """The text up to the end of its first `count` tokens; the whole text where it has no more."""
    ends = [match.end() for match in islice(_TOKEN.finditer(text), count)]
    return text[: ends[-1]] if len(ends) == count and count else text if count else ""


class TokenCounter:
    """Counts the tokens of a text that comes in pieces, up to `most`, at the cost of each piece alone.

    A word counts once it has ended, or at once where a piece brought at least two characters of it: words mostly come
    whole, but someone who types sends letters.
    """

    def __init__(self, most: int) -> None:
        self.tokens = 0
        self._most = most
        self._is_in_word = False
        self._is_word_counted = False

    def add(self, piece: str) -> int:
        """Take the next piece; the number of tokens so far, at most `most`."""
        end = 0
        for match in _TOKEN.finditer(piece):
            if self.tokens >= self._most:
                return self._most
            if match.start() > end or match[1] is not None:
                self._end_word()
            end = match.end()
            if match[1] is not None:
                self.tokens += 1
            elif not self._is_in_word:
                self._is_in_word = True
                self._is_word_counted = match.end() - match.start() >= _WHOLE_CHARS
                self.tokens += self._is_word_counted
        if end < len(piece):
            self._end_word()
        return min(self.tokens, self._most)

    def _end_word(self) -> None:
        if self._is_in_word and not self._is_word_counted:
            self.tokens += 1
        self._is_in_word = False
