"""The slow twin of `_extract`: the same features, written to be read. It is the oracle of the tests, and what a
machine without a compiler runs on."""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

_FNV_BASIS: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_MASK: Final = 0xFFFFFFFF
_SPACE: Final = 0x20
_IDEOGRAPHS: Final = 0x2E80
_TERMINATORS: Final = frozenset(map(ord, ".!?。"))
_MATH: Final = frozenset(map(ord, "=+*/^<>≤≥∑∫√π\\$%×÷"))
_CODE: Final = frozenset(map(ord, "{}[]();_`#|&~"))
_QUOTES: Final = frozenset(map(ord, "\"'“”‘’「」《》"))
MAX_CATEGORIES: Final = 64
BASE_FEATURES: Final = (
    "log_chars", "log_words", "word_length", "number_share", "log_numbers", "log_lines", "log_questions", "log_commas",
    "log_sentences", "math_share", "code_share", "ideograph_share", "upper_share", "distinct_share", "longest_word",
    "log_options", "words_per_sentence", "log_blanks", "log_capitals", "capital_share", "log_commands", "log_quotes",
    "log_colons", "log_brackets", "ends_asking", "starts_lower", "foreign_share", "log_long_words", "log_digits",
    "is_long", "log_names", "log_relatives", "question_place", "log_possessives", "log_degrees", "log_of", "log_the",
    "past_share",
)  # fmt: skip
QUESTION: Final = 1
PAST: Final = 2
OF: Final = 3
THE: Final = 4
THAT: Final = 5
ROLES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("what", "which", "who", "whom", "whose", "when", "where", "how", "why"), QUESTION),
    **dict.fromkeys(("was", "were", "been", "had"), PAST),
    "of": OF, "the": THE, "that": THAT,
}  # fmt: skip
"""What a question's grammar hangs on: one of several hops names things by what they are of, and who did what."""
FAR_QUESTION: Final = 20
"""A question word that stands later counts as if it stood there."""


def _add(state: int, code: int) -> int:
    return ((state ^ code) * _FNV_PRIME) & _MASK


def _finish(state: int) -> int:
    """The finalizer of MurmurHash3, 32 bits: spreads what FNV leaves in the low bits."""
    state ^= state >> 16
    state = (state * 0x85EBCA6B) & _MASK
    state ^= state >> 13
    state = (state * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)


def _hash(text: str) -> int:
    state = _FNV_BASIS
    for char in text:
        state = _add(state, ord(char))
    return state


def _narrow(code: int) -> int:
    """Full-width forms as their ASCII ones."""
    return code - 0xFEE0 if 0xFF01 <= code <= 0xFF5E else code


def _is_ideograph(code: int) -> bool:
    return 0x3400 <= code <= 0x9FFF or 0x20000 <= code <= 0x323AF


class Extractor:
    """Reads features from texts. Deterministic; raises nothing for any text; holds no state of a text."""

    def __init__(self, words: dict[str, int], categories: int, bits: int, head_chars: int, tail_chars: int) -> None:
        if not 0 < categories <= MAX_CATEGORIES:
            raise ValueError(f"between 1 and {MAX_CATEGORIES} categories can be counted")
        if not 0 <= bits <= 24 or not 0 <= head_chars <= 1 << 20 or not 0 <= tail_chars <= 1 << 20:
            raise ValueError("bits or window out of range")
        if any(not 0 <= category < categories for category in words.values()):
            raise ValueError("a word of no category")
        self._words = {_hash(word): category for word, category in words.items()}
        self._roles = {_hash(word): role for word, role in ROLES.items()}
        self._categories = categories
        self._buckets = 1 << bits
        self._head_chars = head_chars
        self._tail_chars = tail_chars
        self.width = len(BASE_FEATURES) + categories

    def extract(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        """Bucket of each n-gram in order of appearance, its weight 1 + ln(count), and the dense features.

        Without buckets (0 bits) no n-grams are counted, and their distinct share is 0.
        """
        window = text
        if len(text) > self._head_chars + self._tail_chars:
            window = text[: self._head_chars] + text[len(text) - self._tail_chars :]
        raw = [_narrow(ord(char)) for char in window]
        low = [ord(chr(code).lower()[0]) for code in raw]
        counts, grams = self._count_grams(low) if self._buckets > 1 else ({}, 0)
        dense = self._read_dense(len(text), raw, low, len(counts), grams)
        ids = np.fromiter(counts.keys(), np.int32, len(counts))
        weights = np.array([1.0 + math.log(count) for count in counts.values()], np.float32)
        return ids, weights, dense

    def _count_grams(self, low: list[int]) -> tuple[dict[int, int], int]:
        codes = [_SPACE]
        for code in low:
            if chr(code).isspace():
                if codes[-1] != _SPACE:
                    codes.append(_SPACE)
            else:
                codes.append(0x30 if 0x30 <= code <= 0x39 else code)
        if codes[-1] != _SPACE:
            codes.append(_SPACE)
        counts: dict[int, int] = {}
        grams = 0
        for start, first in enumerate(codes):
            is_wide = first >= _IDEOGRAPHS
            state = _FNV_BASIS
            for length in range(1, 4 if is_wide else 5):
                end = start + length
                if end > len(codes) or (length >= 3 and codes[end - 2] == _SPACE):
                    break
                state = _add(state, codes[end - 1])
                if length >= 2 or is_wide:
                    bucket = _finish(state) & (self._buckets - 1)
                    counts[bucket] = counts.get(bucket, 0) + 1
                    grams += 1
        return counts, grams

    def _read_dense(  # noqa: C901, PLR0912, PLR0915 - one pass, in the same order as the compiled twin's
        self, chars: int, raw: list[int], low: list[int], distinct: int, grams: int
    ) -> NDArray[np.float32]:
        found = [0] * self._categories
        latin_words = latin_letters = longest = numbers = ideographs = sentences = capitals = long_words = 0
        lines = questions = commas = math_chars = code_chars = uppers = options = blanks = commands = 0
        quotes = colons = brackets = foreign = digits = 0
        names = relatives = question_at = possessives = degrees = of = the = past = 0
        is_name = False  # whether the word before stands in a name
        size = len(raw)
        is_start = True  # of a sentence
        position = 0
        previous: int | None = None  # hash of the word before and a space, where only white space lies between
        while position < size:
            code, letter = raw[position], low[position]
            if 0x61 <= letter <= 0x7A:
                end = position
                single = _FNV_BASIS
                pair = previous
                while end < size and (0x61 <= low[end] <= 0x7A or low[end] == 0x27):
                    uppers += 0x41 <= raw[end] <= 0x5A
                    single = _add(single, low[end])
                    if pair is not None:
                        pair = _add(pair, low[end])
                    end += 1
                length = end - position
                latin_words += 1
                latin_letters += length
                longest = max(longest, length)
                long_words += length >= 9
                if 0x41 <= code <= 0x5A and not is_start:
                    capitals += 1
                    names += not is_name
                    is_name = True
                else:
                    is_name = False
                role = self._roles.get(single, 0)
                if role == QUESTION and not question_at:
                    question_at = latin_words
                relatives += role == THAT or (role == QUESTION and latin_words > 3)
                past += role == PAST
                of += role == OF
                the += role == THE
                ending = "".join(map(chr, low[max(position, end - 3) : end]))
                possessives += ending.endswith(("'s", "s'"))
                degrees += length > 4 and ending.endswith(("er", "est"))
                if single in self._words:
                    found[self._words[single]] += 1
                if pair is not None and pair in self._words:
                    found[self._words[pair]] += 1
                previous = _add(single, _SPACE)
                is_start = False
                position = end
                continue
            if 0x30 <= code <= 0x39:
                end = position
                while end < size and (
                    0x30 <= raw[end] <= 0x39 or (raw[end] == 0x2E and end + 1 < size and 0x30 <= raw[end + 1] <= 0x39)
                ):
                    digits += raw[end] != 0x2E
                    end += 1
                numbers += 1
                previous = None
                is_start = is_name = False
                position = end
                continue
            if _is_ideograph(code):
                ideographs += 1
                state = _FNV_BASIS
                for end in range(position, min(position + 4, size)):
                    if not _is_ideograph(raw[end]):
                        break
                    state = _add(state, raw[end])
                    if state in self._words:
                        found[self._words[state]] += 1
                previous = None
                is_start = is_name = False
                position += 1
                continue
            is_white = chr(code).isspace()
            if not is_white:
                previous = None
                is_name = False
            if code == 0x0A:
                lines += 1
                is_start = True
                at = position + 1
                if at < size and raw[at] == 0x28:
                    at += 1
                if at + 1 < size and 0x41 <= raw[at] <= 0x4A and raw[at + 1] in (0x2E, 0x29):
                    options += 1
            elif code in _TERMINATORS:
                after = raw[position + 1] if position + 1 < size else _SPACE
                questions += code == 0x3F
                if code == 0x3002 or chr(after).isspace() or _is_ideograph(after) or after in _QUOTES:
                    sentences += 1
                    is_start = True
            elif code in (0x2C, 0x3001):
                commas += 1
            elif code in (0x3A, 0x3B):
                colons += 1
            if code in _MATH:
                math_chars += 1
                if code == 0x5C and position + 1 < size and 0x61 <= low[position + 1] <= 0x7A:
                    commands += 1
            if code in _CODE:
                code_chars += 1
                brackets += code == 0x28
                if code == 0x5F and position + 1 < size and raw[position + 1] == 0x5F:
                    blanks += 1
            if code in _QUOTES:
                quotes += 1
            elif code > 0x7F and not is_white and code not in _TERMINATORS and code not in _MATH:
                foreign += 1
            position += 1
        words = latin_words + numbers + ideographs
        last = size - 1
        while last >= 0 and chr(raw[last]).isspace():
            last -= 1
        log, shown, wordy = math.log1p, max(size, 1), max(words, 1)
        base = (
            log(chars), log(words), latin_letters / max(latin_words, 1), numbers / wordy, log(numbers), log(lines),
            log(questions), log(commas), log(sentences), math_chars / shown, code_chars / shown, ideographs / shown,
            uppers / shown, distinct / max(grams, 1), log(longest), log(options), log(words / max(sentences, 1)),
            log(blanks), log(capitals), capitals / max(latin_words, 1), log(commands), log(quotes), log(colons),
            log(brackets), float(last >= 0 and raw[last] == 0x3F), float(size > 0 and 0x61 <= raw[0] <= 0x7A),
            foreign / shown, log(long_words), log(digits), float(chars > size), log(names), log(relatives),
            min(question_at, FAR_QUESTION) / FAR_QUESTION, log(possessives), log(degrees), log(of), log(the),
            past / max(latin_words, 1),
        )  # fmt: skip
        return np.array([*base, *(log(count) for count in found)], np.float32)
