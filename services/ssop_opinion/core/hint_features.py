"""What the sentiment model sees of a text: n-grams, hashed in English and listed in Chinese, and what a lexicon says.

The lexicon's arithmetic follows VADER (Hutto and Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment
Analysis of Social Media Text", ICWSM 2014) in a shorter form. Training and serving use this module; its version is in
the artefact.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add
from typing import Final
from zlib import crc32

from ssop_opinion.core.wording import Language

VERSION: Final = 3
MAX_CHARS: Final = 1_000
DENSE: Final = 8
_KNOWN_WORDS: Final = 8_192
"""Words whose buckets are remembered, each of at most `_WORD_CHARS` characters: a few megabytes."""
_WORD_CHARS: Final = 24
_TOKEN: Final = re.compile(r"[A-Za-z\u00c0-\u024f0-9]+(?:'[a-z]+)?|[^\w\s]")
_SPACED: Final = re.compile(r"\S+")
_CLAUSE: Final = re.compile(r"[^\s，。！？；：、…,.!?;:~]+")
_EDGE: Final = ".,;:!?\"'()[]{}<>#*~-_/\\|"
_NEGATIONS_EN: Final = frozenset(
    [
        "not",
        "no",
        "never",
        "none",
        "nobody",
        "nothing",
        "neither",
        "nor",
        "cannot",
        "cant",
        "can't",
        "dont",
        "don't",
        "doesnt",
        "doesn't",
        "didnt",
        "didn't",
        "wont",
        "won't",
        "isnt",
        "isn't",
        "wasnt",
        "wasn't",
        "arent",
        "aren't",
        "werent",
        "weren't",
        "aint",
        "ain't",
        "hardly",
        "rarely",
        "seldom",
        "without",
        "wouldnt",
        "wouldn't",
        "shouldnt",
        "shouldn't",
        "couldnt",
        "couldn't",
        "havent",
        "haven't",
        "hasnt",
        "hasn't",
        "hadnt",
        "hadn't",
    ]
)
_BOOSTERS_EN: Final = frozenset(
    [
        "very",
        "really",
        "so",
        "too",
        "extremely",
        "absolutely",
        "totally",
        "incredibly",
        "amazingly",
        "super",
        "most",
        "more",
        "completely",
        "deeply",
        "fucking",
        "freaking",
        "hella",
        "highly",
        "especially",
        "particularly",
        "quite",
        "such",
        "truly",
        "utterly",
    ]
)
_DAMPERS_EN: Final = frozenset(
    ["almost", "barely", "hardly", "kind", "sort", "somewhat", "slightly", "little", "less", "partly", "marginally"]
)
_BOOST: Final = 0.293
_FLIP: Final = -0.74
_CAPITALS: Final = 0.733
_NORM: Final = 15.0
# No valence: what turns or strengthens the next word.
_NEGATION: Final = 100.0
_BOOSTER: Final = 101.0


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words with their valence, from -4 to 4; those of Chinese, with their negations and boosters."""

    english: Mapping[str, float]
    chinese: Mapping[str, float]
    negations: frozenset[str]
    boosters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Features:
    """`ids` are distinct rows of the table, English before Chinese (see Extractor.span); `dense` has DENSE numbers."""

    ids: tuple[int, ...]
    dense: tuple[float, ...]


class Extractor:
    """Makes the features of texts. Deterministic; raises nothing for any text."""

    def __init__(self, lexicon: Lexicon, bits: int, grams: Sequence[str] = ()) -> None:
        """`bits`: 2 ** bits buckets of English. `grams`: those of Chinese, by their place; the others are not seen."""
        self.bits = bits
        self.grams = grams
        self._lexicon = lexicon
        self._mask = (1 << bits) - 1
        # The first Chinese row stands for a text of which no n-gram is listed.
        self._nothing = 1 << bits
        self._places = {gram: place for place, gram in enumerate(grams, self._nothing + 1)}
        # One look-up a width for three lists; what is in two of them is what the later says.
        self._chinese = (
            dict.fromkeys(lexicon.boosters, _BOOSTER)
            | dict.fromkeys(lexicon.negations, _NEGATION)
            | {**lexicon.chinese}
        )
        self._longest: dict[str, int] = {}
        for word in self._chinese:
            self._longest[word[:1]] = max(len(word), self._longest.get(word[:1], 0))

    def span(self, language: Language) -> range:
        """The rows of a language."""
        return range(self._nothing, self._nothing + 1 + len(self.grams)) if language == "zh" else range(self._nothing)

    def extract(self, text: str, language: Language) -> Features:
        """The features of an evened-out text. Only its first MAX_CHARS characters are seen."""
        text = text[:MAX_CHARS]
        mask = self._mask
        lowered = text.lower()
        if language == "zh":
            find, nothing = self._places.get, self._nothing
            ids = {find(gram, nothing) for gram in chinese_grams(lowered)}
            if len(ids) > 1:
                ids.discard(nothing)
            return Features(tuple(sorted(ids)), self._weigh_chinese(lowered))
        ids = set()
        before = "^"
        for token in _TOKEN.findall(lowered):
            ids.update(_known_buckets(token, mask) if len(token) <= _WORD_CHARS else _buckets(token, mask))
            ids.add(crc32(f"b{before} {token}".encode()) & mask)
            before = token
        return Features(tuple(sorted(ids)), self._weigh_english(text))

    def _weigh_english(self, text: str) -> tuple[float, ...]:
        words = [_strip(word) for word in _SPACED.findall(text)]
        lowered = [word.lower() for word in words]
        has_small = any(word != word.upper() for word in words)
        find = self._lexicon.english.get
        scores: list[float] = []
        but = 0
        for at, word in enumerate(lowered):
            if word == "but":
                but = len(scores)
            valence = find(word)
            if valence is None:
                continue
            sign = 1.0 if valence > 0 else -1.0
            if has_small and len(word) > 1 and words[at] == words[at].upper() != words[at].lower():
                valence += sign * _CAPITALS
            for back in range(1, 4):
                before = lowered[at - back] if at >= back else ""
                if before in _BOOSTERS_EN:
                    valence += sign * _BOOST * (1.05 - 0.05 * back)
                elif before in _DAMPERS_EN:
                    valence -= sign * _BOOST * (1.05 - 0.05 * back)
            if any(lowered[at - back] in _NEGATIONS_EN for back in range(1, 4) if at >= back):
                valence *= _FLIP
            scores.append(valence)
        if but:
            scores = [score * (0.5 if at < but else 1.5) for at, score in enumerate(scores)]
        return _summary(scores, len(words), text)

    def _weigh_chinese(self, text: str) -> tuple[float, ...]:
        words, longest = self._chinese, self._longest
        scores: list[float] = []
        turned, strength, reach = 1.0, 1.0, 0
        at, end = 0, len(text)
        while at < end:
            for width in range(min(longest.get(text[at], 0), end - at), 0, -1):
                valence = words.get(text[at : at + width])
                if valence is None:
                    continue
                if valence == _NEGATION:
                    turned, reach = turned * _FLIP, 3
                elif valence == _BOOSTER:
                    strength, reach = 1.3, 3
                else:
                    scores.append(valence * turned * strength)
                    turned, strength, reach = 1.0, 1.0, 0
                break
            else:
                width = 1
                reach -= 1
                if reach <= 0 or text[at] in "，。！？,.!?；; ":
                    turned, strength = 1.0, 1.0
            at += width
        return _summary(scores, max(1, end // 2), text)


def _summary(scores: list[float], words: int, text: str) -> tuple[float, ...]:
    total = sum(scores)
    up = sum(score for score in scores if score > 0)
    down = -sum(score for score in scores if score < 0)
    compound = total / math.sqrt(total * total + _NORM)
    width = max(1.0, math.sqrt(words))
    return (
        compound,
        abs(compound),
        up / width,
        down / width,
        (scores[-1] if scores else 0.0) / 4,
        min(4, text.count("!") + text.count("！")) / 4,
        min(4, text.count("?") + text.count("？")) / 4,
        min(1.0, math.log1p(words) / 5),
    )


def _strip(word: str) -> str:
    bare = word.strip(_EDGE)
    # What little is left of an emoticon is not a word.
    return bare if len(bare) > 2 or len(bare) == len(word) or bare.isalpha() else word


def _buckets(token: str, mask: int) -> tuple[int, ...]:
    """Buckets of a word alone: itself, and its runs of three to five characters."""
    grams = ["w" + token]
    if len(token) > 2:
        marked = f" {token} "
        grams += [marked[at : at + width] for width in (3, 4, 5) for at in range(len(marked) - width + 1)]
    return tuple(crc32(gram.encode()) & mask for gram in grams)


# Most of what is written is made of few words.
_known_buckets: Final = lru_cache(_KNOWN_WORDS)(_buckets)


def chinese_grams(text: str) -> list[str]:
    """One to three characters of a clause, whose ends are characters as well: how a clause ends says much."""
    grams: list[str] = []
    for clause in _CLAUSE.findall(text):
        marked = f"^{clause}$"
        grams += marked
        grams += map(add, marked, marked[1:])
        grams += [marked[at : at + 3] for at in range(len(marked) - 2)]
    return grams
