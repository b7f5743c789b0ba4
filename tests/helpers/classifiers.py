"""Classifiers that say what a test wants."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ssop_router.core.complexity import Complexity


@dataclass
class FixedClassifier:
    """Scores texts by a table, else `otherwise`; may fail."""

    otherwise: float | None = 0.5
    scores: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0
    error: Exception | None = None
    version: str = "fixed-1"
    asked: list[str] = field(default_factory=list)

    def score(self, text: str) -> Complexity:
        self.asked.append(text)
        if self.error is not None:
            raise self.error
        return Complexity(self.scores.get(text, self.otherwise), self.spread)
