"""A tenant's brands, found in a post by their names alone: no embedding, no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_FOUND: Final = 3


@dataclass(frozen=True, slots=True)
class Brand:
    """A brand or product. `names` are what posts call it, `name` among them or not; `note` goes into the prompt."""

    name: str
    names: Sequence[str] = ()
    note: str = ""


class BrandIndex:
    """Finds brands in texts: at each place a few look-ups, whatever the number of brands."""

    def __init__(self, brands: Sequence[Brand]) -> None:
        self._brands: dict[str, Brand] = {}
        for brand in brands:
            for name in (brand.name, *brand.names):
                if name.strip():
                    self._brands.setdefault(name.strip().lower(), brand)
        # By their first two characters, the lengths of names, longest first: "Tessel X2" before "Tessel".
        lengths: dict[str, set[int]] = {}
        for name in self._brands:
            lengths.setdefault(name[:2], set()).add(len(name))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}

    @property
    def handles(self) -> frozenset[str]:
        """Names without blanks, lower case: handles that say which brand a post is about."""
        return frozenset(name.removeprefix("@") for name in self._brands if " " not in name)

    def find(self, text: str) -> Sequence[Brand]:
        """The brands that the text names, at most MAX_FOUND, in the order of their first mention.

        Latin names are whole words, others stand anywhere.
        """
        text = text.lower()
        found: dict[str, Brand] = {}
        at = 0
        while at < len(text) and len(found) < MAX_FOUND:
            name = self._name_at(text, at)
            if name:
                brand = self._brands[name]
                found.setdefault(brand.name, brand)
            at += len(name) or 1
        return tuple(found.values())

    def _name_at(self, text: str, at: int) -> str:
        heads = (text[at : at + 2], text[at])
        for length in (length for head in heads for length in self._lengths.get(head, ())):
            name = text[at : at + length]
            if name in self._brands and _is_apart(text, at, at + length):
                return name
        return ""


def _is_apart(text: str, start: int, end: int) -> bool:
    """Whether no Latin word goes on over an edge."""
    return not (
        (start and _is_latin(text[start - 1]) and _is_latin(text[start]))
        or (end < len(text) and _is_latin(text[end - 1]) and _is_latin(text[end]))
    )


def _is_latin(char: str) -> bool:
    return char.isalnum() and char < "\u0250"


def describe(brands: Sequence[Brand]) -> Sequence[str]:
    """Brands as a prompt names them."""
    return tuple(f"{brand.name} ({brand.note})" if brand.note else brand.name for brand in brands)
