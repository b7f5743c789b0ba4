"""A tenant's brands, found in a post by their names alone: no embedding, no model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_FOUND: Final = 3
_WORD: Final = r"[A-Za-z0-9\u00c0-\u024f]"


@dataclass(frozen=True, slots=True)
class Brand:
    """A brand or product. `names` are what posts call it, `name` among them or not; `note` goes into the prompt."""

    name: str
    names: Sequence[str] = ()
    note: str = ""


class BrandIndex:
    """Finds brands in texts. One pass over the text, whatever their number."""

    def __init__(self, brands: Sequence[Brand]) -> None:
        self._brands: dict[str, Brand] = {}
        for brand in brands:
            for name in (brand.name, *brand.names):
                if name.strip():
                    self._brands.setdefault(name.strip().lower(), brand)
        # Longest first: "Tessel X2" before "Tessel". Latin names are whole words, others stand anywhere.
        ordered = sorted(self._brands, key=lambda name: (-len(name), name))
        self._pattern = re.compile("|".join(map(_edges, ordered)), re.IGNORECASE) if ordered else None

    @property
    def handles(self) -> frozenset[str]:
        """Names without blanks, lower case: handles that say which brand a post is about."""
        return frozenset(name.removeprefix("@") for name in self._brands if " " not in name)

    def find(self, text: str) -> Sequence[Brand]:
        """The brands that the text names, at most MAX_FOUND, in the order of their first mention."""
        found: dict[str, Brand] = {}
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            brand = self._brands.get(match[0].lower())
            if brand is not None:
                found.setdefault(brand.name, brand)
            if len(found) == MAX_FOUND:
                break
        return tuple(found.values())


def describe(brands: Sequence[Brand]) -> Sequence[str]:
    """Brands as a prompt names them."""
    return tuple(f"{brand.name} ({brand.note})" if brand.note else brand.name for brand in brands)


def _edges(name: str) -> str:
    before = f"(?<!{_WORD})" if re.match(_WORD, name) else ""
    after = f"(?!{_WORD})" if re.match(_WORD, name[-1]) else ""
    return f"{before}{re.escape(name)}{after}"
