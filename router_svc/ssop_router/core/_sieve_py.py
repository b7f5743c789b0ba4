"""The twin of `_sieve.pyx`, for where that is not built."""

from collections.abc import Sequence


class Sieve:
    """Says whether any of some needles is in a text, or that a text can't be searched. No needle is empty."""

    def __init__(self, needles: Sequence[str]) -> None:
        self._needles = tuple(needles)

    def catches(self, text: str) -> bool:
        """Whether any needle is in a text."""
        for needle in self._needles:  # noqa: SIM110 - a generator costs more than the searches
            if needle in text:
                return True
        return False
