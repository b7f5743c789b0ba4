"""Reads regular expressions of ECMA-262 in Unicode mode, as `pattern` of JSON Schema has them.

What the grammar of Unicode mode forbids but means one thing only is taken: a needless backslash before a
punctuation mark, a `{`, `}` or `]` by itself, a `-` beside a class escape. All else is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .pattern_sets import ANYTHING, ESCAPED, LINE_ENDS, NOTHING, Intervals, negate, property_set, union


class PatternError(ValueError):
    """A pattern that is not supported; the text says why, in words. `keyword` is `pattern` or that of a cap."""

    def __init__(self, reason: str, keyword: str = "pattern") -> None:
        super().__init__(reason)
        self.keyword = keyword


@dataclass(frozen=True, slots=True)
class Chars:
    """One code point of a set."""

    intervals: Intervals


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; the empty sequence matches the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of them."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times; `most` None: without end."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of the text."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the text."""


@dataclass(frozen=True, slots=True)
class WordEdge:
    r"""`\b`, or `\B` where negated."""

    negated: bool


@dataclass(frozen=True, slots=True)
class Look:
    """A lookahead."""

    item: Node
    negated: bool


Node = Chars | Sequence | Choice | Repeat | Begin | End | WordEdge | Look

_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_ANY_BUT_LINE_END: Final = Chars(negate(LINE_ENDS))
_REPEATS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(text: str, *, max_depth: int) -> Node:
    """The tree of a pattern. `max_depth` bounds the nesting of groups. Raises PatternError."""
    parser = _Parser(text, max_depth)
    node = parser.choice(0)
    if parser.at < len(text):
        raise PatternError("a ) without its (")
    return node


class _Parser:
    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.at = 0
        self.max_depth = max_depth
        self.names: set[str] = set()

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self) -> str:
        if self.at >= len(self.text):
            raise PatternError("ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def skip(self, token: str) -> bool:
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def choice(self, depth: int) -> Node:
        if depth > self.max_depth:
            raise PatternError(f"more than {self.max_depth} levels of groups", "max_pattern_depth")
        branches = [self.sequence(depth)]
        while self.skip("|"):
            branches.append(self.sequence(depth))
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            is_group = self.peek() == "("
            item = self.atom(depth)
            repeat = self.repeat()
            if repeat is not None:
                if not is_group and isinstance(item, (Begin, End, WordEdge)):
                    raise PatternError("a quantifier without something to repeat")
                item = Repeat(item, *repeat)
            items.append(item)
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def repeat(self) -> tuple[int, int | None] | None:
        """The quantifier that follows, if one does. Lazy ones match the same texts."""
        found: tuple[int, int | None] | None = _REPEATS.get(self.peek())
        if found is not None:
            self.at += 1
        else:
            found = self.braces()
            if found is None:
                return None
        self.skip("?")
        return found

    def braces(self) -> tuple[int, int | None] | None:
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        body = self.text[self.at + 1 : end] if end > 0 else ""
        low, comma, high = body.partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        self.at = end + 1
        least = _count(low)
        most = _count(high) if high else (None if comma else least)
        if most is not None and most < least:
            raise PatternError("the numbers of a quantifier are out of order")
        return least, most

    def atom(self, depth: int) -> Node:  # noqa: PLR0911  # one exit per first character
        c = self.take()
        if c == "(":
            return self.group(depth)
        if c == "[":
            return Chars(self.char_class())
        if c == "\\":
            return self.escape()
        if c == ".":
            return _ANY_BUT_LINE_END
        if c == "^":
            return Begin()
        if c == "$":
            return End()
        self.at -= 1
        if c in _REPEATS or self.braces() is not None:
            raise PatternError("a quantifier without something to repeat")
        self.at += 1
        return _point(ord(c))

    def group(self, depth: int) -> Node:
        look = None
        if self.skip("?"):
            if self.skip("<=") or self.skip("<!"):
                raise PatternError("lookbehind is not supported")
            if self.skip("=") or self.skip("!"):
                look = self.text[self.at - 1] == "!"
            elif self.skip("<"):
                self.group_name()
            elif not self.skip(":"):
                raise PatternError("this kind of group, (?" + self.peek() + ", is not supported")
        node = self.choice(depth + 1)
        if not self.skip(")"):
            raise PatternError("a ( without its )")
        return node if look is None else Look(node, look)

    def group_name(self) -> None:
        end = self.text.find(">", self.at)
        name = self.text[self.at : end] if end > 0 else ""
        if not name.replace("$", "_").isidentifier():
            raise PatternError("a group name that is none")
        if name in self.names:
            raise PatternError("a group name that comes twice")
        self.names.add(name)
        self.at = end + 1

    # -- escapes ------------------------------------------------------------------------------------------

    def escape(self) -> Node:
        c = self.peek()
        if c in ("b", "B"):
            self.at += 1
            return WordEdge(c == "B")
        if c in ("k", *"123456789"):
            raise PatternError("a backreference is not supported")
        found = self.class_escape()
        return _point(found) if isinstance(found, int) else Chars(found)

    def class_escape(self) -> int | Intervals:  # noqa: PLR0911  # one exit per kind of escape
        """What stands behind a backslash: a code point or a set."""
        c = self.take()
        if c in ESCAPED:
            return ESCAPED[c]
        if c in ("p", "P"):
            return self.property(negated=c == "P")
        if c in _CONTROLS:
            return _CONTROLS[c]
        if c == "x":
            return self.hex(2)
        if c == "u":
            return self.unicode()
        if c == "0" and not self.peek().isdecimal():
            return 0
        if c == "c":
            letter = self.take()
            if not (letter.isascii() and letter.isalpha()):
                raise PatternError(r"\c without a letter")
            return ord(letter) % 32
        if c.isascii() and c.isalnum():
            raise PatternError(f"the escape \\{c} is not supported")
        return ord(c)

    def property(self, *, negated: bool) -> Intervals:
        end = self.text.find("}", self.at)
        if self.peek() != "{" or end < 0:
            raise PatternError(r"\p without a name in braces")
        name = self.text[self.at + 1 : end]
        self.at = end + 1
        intervals = property_set(name)
        if intervals is None:
            raise PatternError(f"the Unicode property {name} is not supported")
        return negate(intervals) if negated else intervals

    def hex(self, digits: int) -> int:
        text = self.text[self.at : self.at + digits]
        if len(text) < digits or not _is_hex(text):
            raise PatternError(f"an escape without its {digits} hexadecimal digits")
        self.at += digits
        return int(text, 16)

    def unicode(self) -> int:
        if self.skip("{"):
            end = self.text.find("}", self.at)
            text = self.text[self.at : end] if end > 0 else ""
            if not _is_hex(text) or len(text) > 16 or int(text, 16) > 0x10FFFF:
                raise PatternError(r"\u{} without a code point")
            self.at = end + 1
            return int(text, 16)
        unit = self.hex(4)
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.at):
            low = self.text[self.at + 2 : self.at + 6]
            if len(low) == 4 and _is_hex(low) and 0xDC00 <= int(low, 16) < 0xE000:
                self.at += 6
                return 0x10000 + ((unit - 0xD800) << 10) + int(low, 16) - 0xDC00
        return unit

    # -- classes ------------------------------------------------------------------------------------------

    def char_class(self) -> Intervals:
        negated = self.skip("^")
        parts: list[tuple[int, int]] = []
        while not self.skip("]"):
            low = self.member()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.member()
                if isinstance(low, int) and isinstance(high, int):
                    if high < low:
                        raise PatternError("a range of a class is out of order")
                    parts.append((low, high))
                    continue
                # A class escape has no ends: the hyphen stands for itself.
                parts.append((0x2D, 0x2D))
                parts += _as_intervals(high)
            parts += _as_intervals(low)
        intervals = union(parts)
        if not intervals:
            return ANYTHING if negated else NOTHING
        return negate(intervals) if negated else intervals

    def member(self) -> int | Intervals:
        c = self.take()
        if c != "\\":
            return ord(c)
        if self.skip("b"):
            return 8
        return self.class_escape()


def _point(point: int) -> Chars:
    return Chars(((point, point),))


def _as_intervals(found: int | Intervals) -> Intervals:
    return ((found, found),) if isinstance(found, int) else found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _count(text: str) -> int:
    # No text within the caps is repeated as often; int() of very long digits is slow.
    return int(text) if len(text) <= 9 else 10**9


def _is_hex(text: str) -> bool:
    return bool(text) and all(c in "0123456789abcdefABCDEF" for c in text)
