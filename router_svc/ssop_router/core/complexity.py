"""What a classifier says about a text, and the line along which one is plugged in."""

from typing import NamedTuple, Protocol


class Complexity(NamedTuple):
    """How likely a text needs the full tier.

    `score` is from 0 to 1 and grows with the need; None: the classifier abstains, and `abstention` says why in one
    word. `spread` is the half-width of what the classifier is unsure about, in the same unit.
    """

    score: float | None = None
    spread: float = 0.0
    abstention: str = ""


class ComplexityModel(Protocol):
    """Scores texts in microseconds. Deterministic, safe on several threads, raises nothing for any text."""

    @property
    def version(self) -> str:
        """Names weights and features; stands in decisions and metrics."""
        ...

    def score(self, text: str) -> Complexity:
        """The complexity of the last user message."""
        ...
