"""Whether two questions ask the same: what embeddings can't tell. Pure.

Cosine similarity does not see a "not", a year or who beats whom: a question and its reversal come out as near as a
question and its paraphrase. So two questions count as the same only if they say the same words in the same order, apart
from what certainly does not matter: politeness around a question, "the", marks that end or part sentences, case and
width of letters, ways to write a number, contractions and spellings, and two parts around a comma that change places.
What is no decoration counts: brackets, quotes, marks inside of a notation (`5!`, `!=`, `.5`), the case of symbols and
units (`mW`, `MW`), a comma beside a negation. What is left is compared as a whole. Numbers, negations, names and words
of direction are told apart first, to say why two differ. A guard refuses in doubt: a similar answer that is not found
costs one generation.

Facts hold keyed hashes and no text, so that an index of them holds no text either.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ssop_cache.core import lexicon as words

MAX_TEXT_CHARS: Final = 2_048
"""Longer questions have no facts: nobody asks them twice in other words."""
DIGEST_BYTES: Final = 8
_PHRASES: Final = 8
"""Polite phrases around a question that are looked for; nobody is politer."""
_SIMPLE: Final = 5
"""Facts that every question has; the orders of its words follow."""
_TOKEN: Final = re.compile(
    r"\n[ \t]*"  # lines and their indentation, as code has them
    r"|\d{1,3}(?:,\d{3}){1,6}(?![\d,])|\d+(?:[.:/]\d+)*"
    r"|[A-Za-z\u00c0-\u024f\u0370-\u052f][\w'+#.&-]*[\w+#]|[A-Za-z\u00c0-\u024f\u0370-\u052f]"
    r"|\.\.\.|\u2026|[^\s]"
)
_DROPPED: Final = frozenset(",.!?;:，。！？；：、·¿¡")
_GLUED: Final = frozenset(".!?:;")
"""Marks that are part of a notation where they touch what follows: `!x`, `a != b`, `.5`."""
_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‟«»「」『』`'", '"') | {"‘": '"'})
_MAX_MARKS: Final = 4
_SYMBOL_CHARS: Final = 2
_UNIT_CHARS: Final = 3
_MARKS: Final = "".join(_DROPPED) + " \t"
_COMMAS: Final = frozenset(",，")
_WIDE: Final = frozenset({"<wide>", "<narrow>"})
_LATIN: Final = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u052f]")


class Guard(StrEnum):
    """What tells two near questions apart."""

    NUMBER = "number"
    NEGATION = "negation"
    POLARITY = "polarity"
    ENTITY = "entity"
    ORDER = "order"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a question says, as hashes of 8 bytes.

    `content` is of its words whatever their order, `orders` of the orders in which they may stand.
    """

    numbers: bytes
    negations: bytes
    polarity: bytes
    entities: bytes
    content: bytes
    orders: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    is_name: bool = False
    is_number: bool = False


def read_facts(text: str, secret: bytes) -> Facts | None:
    """The facts of a question; None where it is too long, or nothing is left of it.

    `secret` keys the hashes (BLAKE2b, RFC 7693): facts of different secrets are never equal.
    """
    if len(text) > MAX_TEXT_CHARS:
        return None
    clean = _narrow(text)
    parts = _reduce(clean)
    sequence = [word for part in parts for word in part]
    if not sequence:
        return None

    def digest(kind: str, items: Iterable[str]) -> bytes:
        hashed = hashlib.blake2b(kind.encode(), digest_size=DIGEST_BYTES, key=secret[:64])
        for item in items:
            hashed.update(b"\0" + item.encode(errors="surrogatepass"))
        return hashed.digest()

    texts = [word.text for word in sequence]
    asks = _asks(clean, texts)
    orders = [texts]
    if len(parts) == 2 and not words.ORDERED & set(texts):
        orders.append([word.text for part in reversed(parts) for word in part])
    return Facts(
        digest("numbers", (word.text for word in sequence if word.is_number)),
        digest("negations", sorted(text for text in texts if text in words.NEGATIONS)),
        digest("polarity", sorted(_polar(texts))),
        digest("entities", sorted(word.text for word in sequence if word.is_name)),
        digest("content", [asks, *sorted(texts)]),
        tuple(digest("order", [asks, *order]) for order in orders),
    )


def tell_apart(first: Facts, second: Facts) -> Guard | None:
    """What tells two questions apart; None where they ask the same."""
    if set(first.orders) & set(second.orders):
        return None
    checks: Sequence[tuple[Guard, Callable[[Facts], bytes]]] = (
        (Guard.NUMBER, lambda facts: facts.numbers),
        (Guard.NEGATION, lambda facts: facts.negations),
        (Guard.POLARITY, lambda facts: facts.polarity),
        (Guard.ENTITY, lambda facts: facts.entities),
        (Guard.CONTENT, lambda facts: facts.content),
    )
    for guard, fact in checks:
        if fact(first) != fact(second):
            return guard
    return Guard.ORDER


def encode_facts(facts: Facts) -> bytes:
    """The facts as bytes."""
    simple = (facts.numbers, facts.negations, facts.polarity, facts.entities, facts.content)
    return b"".join((*simple, *facts.orders))


def decode_facts(data: bytes) -> Facts:
    """See encode_facts. Raises ValueError."""
    pieces = [data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES)]
    if len(data) % DIGEST_BYTES or not _SIMPLE < len(pieces) <= _SIMPLE + 2:
        raise ValueError("not the facts of a question")
    numbers, negations, polarity, entities, content = pieces[:_SIMPLE]
    return Facts(numbers, negations, polarity, entities, content, tuple(pieces[_SIMPLE:]))


def _narrow(text: str) -> str:
    """Letters of full width as the ordinary ones, and composed. Powers and fractions stay what they are."""
    if text.isascii():
        return text.strip()
    narrowed = "".join(
        unicodedata.normalize("NFKC", char) if unicodedata.decomposition(char).split(" ", 1)[0] in _WIDE else char
        for char in text
    )
    return unicodedata.normalize("NFC", narrowed).replace("\u2019", "'").replace("您", "你").strip()


def _reduce(text: str) -> list[list[_Word]]:
    """The words of a question that matter, in two parts where one comma stands between them, else in one."""
    text = _strip_chinese(text)
    matches = list(_TOKEN.finditer(text))
    plain = ["" if _is_notation(text, match) else match[0].lower() for match in matches]
    begin, end = _strip_english(plain)
    parts: list[list[_Word]] = [[]]
    is_start = begin == 0 or plain[begin - 1] in _DROPPED
    for match, mark in zip(matches[begin:end], plain[begin:end], strict=True):
        piece = match[0]
        if piece in _COMMAS:
            before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
            if (before.isdigit() and after.isdigit()) or (before.isspace() and after.isspace()):
                parts[-1].append(_Word(piece))  # 3,5 is not 35
            else:
                parts.append([])
        elif mark in _DROPPED:
            is_start = is_start or piece in ".!?。！？"
        else:
            last = parts[-1][-1] if parts[-1] else None
            is_unit = last is not None and (last.is_number or last.text in words.NUMBERS)
            parts[-1] += _read_token(piece, is_start=is_start, is_unit=is_unit)
            is_start = False
    parts = [part for part in parts if part]
    if len(parts) > 1 and any(word.text in words.NEGATIONS for part in parts for word in part):
        # "Stop, not go" is no "Stop not, go".
        parts = [[word for part in parts for word in (*part, _Word(","))]]
    if len(parts) != 2:
        parts = [[word for part in parts for word in part]]
    return [_join_numbers(_shorten_how(part)) for part in parts]


def _is_notation(text: str, match: re.Match[str]) -> bool:
    """Whether a mark says more than where a sentence ends."""
    if match[0] not in _GLUED:
        return False
    start, end = match.span()
    before, after = text[max(0, start - 2) : start], text[end : end + 1]
    if _stands_alone(text, start) and not (match[0] in "?!" and not text[end:].strip(_MARKS)):
        return True
    if after.strip() and after not in _DROPPED and after not in "\"')]" and not _is_cjk(after):
        return True
    # A factorial, of a number, of what is in brackets or of one letter.
    is_operand = before[-1:].isdecimal() or before[-1:] == ")"
    is_letter = before[-1:].isalpha() and not before[:-1].isalnum() and not _is_cjk(before[-1:])
    return match[0] == "!" and (is_operand or is_letter)


def _stands_alone(text: str, start: int) -> bool:
    """Whether the marks that lead to `start` follow no word: `git add .`, `cd ..`, what `?` means."""
    for _ in range(_MAX_MARKS):
        if not start or text[start - 1] not in _GLUED:
            break
        start -= 1
    return text[start - 1 : start].isspace() or text[start - 1 : start] in {'"', "`", "'", "“", "‘"}


def _is_cased(piece: str, *, is_unit: bool) -> bool:
    """Whether another case would be another symbol, or another unit."""
    lower = piece.lower()
    if is_unit and len(piece) <= _UNIT_CHARS:
        return lower not in words.HOURS
    return len(piece) <= _SYMBOL_CHARS and lower not in words.SHORT


def _read_token(piece: str, *, is_start: bool, is_unit: bool) -> list[_Word]:
    if piece[0].isdecimal():
        return [_Word(piece.replace(",", ""), is_number=True)]
    if not _LATIN.match(piece):
        return [_Word(piece.translate(_QUOTES))]
    if _is_cased(piece, is_unit=is_unit):
        return [_Word(piece, is_name=piece.isupper())]
    lower = piece.lower().strip(".")
    lower = words.SPELLINGS.get(lower, lower)
    if lower == "the":
        return []
    if lower in words.CONTRACTIONS:
        return [_Word(part) for part in words.CONTRACTIONS[lower].split()]
    is_capital = piece[0].isupper() and not is_start and lower != "i"
    is_code = any(char.isdigit() for char in piece) or (len(piece) > 1 and piece.isupper())
    is_name = is_capital or is_code
    return [_Word(f"{lower}^" if is_name and lower in words.CASED else lower, is_name=is_name)]


def _strip_chinese(text: str) -> str:
    """Without what is said politely around a question."""
    for _ in range(_PHRASES):
        before = text
        if _is_cjk(text.lstrip(_MARKS)[:1]):
            text = text.lstrip(_MARKS)
        for phrase in words.ZH_BEFORE:
            rest = text.removeprefix(phrase)
            if len(rest) > 1 and rest != text and rest[0] not in words.ZH_NOT_BEFORE:
                text = rest
                break
        for phrase in words.ZH_GREETINGS:
            rest = text.removeprefix(phrase)
            if rest != text and rest[:1] in _DROPPED and len(rest.strip(_MARKS)) > 1:
                text = rest.lstrip(_MARKS)
                break
        text = _strip_end(text)
        if text == before:
            break
    return text


def _strip_end(text: str) -> str:
    stem = text.rstrip(_MARKS)
    for phrase in words.ZH_AFTER:
        rest = stem.removesuffix(phrase)
        if rest != stem and len(rest) > 1 and _is_cjk(rest[-1]) and rest[-1] not in words.ZH_NOT_AFTER:
            return rest
    for phrase in words.ZH_THANKS:
        rest = stem.removesuffix(phrase)
        if rest != stem and rest[-1:] in _MARKS and len(rest.strip(_MARKS)) > 1:
            return rest
    return text


def _is_cjk(char: str) -> bool:
    return "\u3400" <= char <= "\u9fff"


def _strip_english(tokens: Sequence[str]) -> tuple[int, int]:
    """Where the question begins and ends among its tokens."""
    begin, end = 0, len(tokens)
    for _ in range(_PHRASES):
        before = (begin, end)
        while begin < end and tokens[begin] in _DROPPED:
            begin += 1
        while begin < end and tokens[end - 1] in _DROPPED:
            end -= 1
        rest = tokens[begin:end]
        begin += _size_before(rest)
        for phrase in words.EN_AFTER:
            parts = phrase.split()
            stem = end - len(parts)
            if stem - begin > 1 and list(tokens[stem:end]) == parts and tokens[stem - 1] in _DROPPED:
                end = stem
                break
        if (begin, end) == before:
            break
    return begin, end


def _size_before(tokens: Sequence[str]) -> int:
    """Tokens of a phrase at the start that is not part of the question."""
    for phrase in (*words.EN_BEFORE, *words.EN_GREETINGS, *words.EN_ASKING):
        size = _starts_with(tokens, phrase)
        if not size or size >= len(tokens):
            continue
        following = tokens[size]
        if phrase in words.EN_GREETINGS and following not in _DROPPED:
            continue
        if phrase in words.EN_ASKING and following not in words.WH:
            continue
        return size
    return 0


def _starts_with(tokens: Sequence[str], phrase: str) -> int:
    """Tokens of the phrase, if it stands at the start; else 0."""
    parts = phrase.split()
    return len(parts) if list(tokens[: len(parts)]) == parts else 0


def _shorten_how(sequence: list[_Word]) -> list[_Word]:
    texts = [word.text for word in sequence]
    for phrase in words.EN_HOW:
        if size := _starts_with(texts, phrase):
            return [_Word("how"), _Word("to"), *sequence[size:]]
    return sequence


def _join_numbers(sequence: list[_Word]) -> list[_Word]:
    """Numbers in words as digits: `twenty five` and 二十五 as 25. A lone "one" or 一 is no number."""
    found: list[_Word] = []
    at = 0
    while at < len(sequence):
        size, number = _read_english(sequence, at)
        if not size:
            size, number = _read_chinese(sequence, at)
        if size:
            found.append(_Word(str(number), is_number=True))
            at += size
        else:
            found.append(sequence[at])
            at += 1
    return found


def _read_english(sequence: Sequence[_Word], at: int) -> tuple[int, int]:
    """Words of a number up to 99, and the number. `hundred` and more stay words beside it."""
    number = words.NUMBERS.get(sequence[at].text)
    if number is None:
        return 0, 0
    following = sequence[at + 1].text if at + 1 < len(sequence) else ""
    if number >= 20 and 0 < words.NUMBERS.get(following, 0) < 10:
        return 2, number + words.NUMBERS[following]
    return (0, 0) if number == 1 else (1, number)


def _read_chinese(sequence: Sequence[_Word], at: int) -> tuple[int, int]:
    """Characters of a number below 10,000 that certainly is one: of two or more, or before what is counted."""
    end, total, digit, is_spelt = at, 0, -1, False
    while end < len(sequence):
        char = sequence[end].text
        if char in words.ZH_DIGITS:
            if digit > 0:
                # 二三 may be a number in digits or "two or three".
                return 0, 0
            digit = words.ZH_DIGITS[char]
        elif char in words.ZH_UNITS:
            total += words.ZH_UNITS[char] * (1 if digit < 0 else digit)
            digit, is_spelt = -1, True
        else:
            break
        end += 1
    size = end - at
    following = sequence[end].text if end < len(sequence) else ""
    if not size or following in {"万", "亿"}:
        return 0, 0
    is_number = (is_spelt and size > 1) or (bool(following) and following in words.ZH_COUNTED)
    return (size, total + max(0, digit)) if is_number else (0, 0)


def _polar(texts: Sequence[str]) -> list[str]:
    """Words that turn a question round, Chinese ones of two characters before those of one."""
    found = []
    at = 0
    while at < len(texts):
        pair = "".join(texts[at : at + 2])
        if len(pair) == 2 and pair in words.POLARITY:
            found.append(pair)
            at += 2
            continue
        if texts[at] in words.POLARITY:
            found.append(texts[at])
        at += 1
    return found


def _asks(text: str, texts: Sequence[str]) -> str:
    """Whether it is a question or a statement: the same words may be either."""
    is_question = (
        "?" in text
        or "？" in text
        or texts[0] in words.WH
        or texts[0] in words.AUXILIARIES
        or any(word in text for word in words.ZH_QUESTION)
    )
    return "question" if is_question else "statement"
