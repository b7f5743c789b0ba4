from ssop_router.classification._extract import Extractor
from ssop_router.classification.evaluation import Weights
from ssop_router.core.complexity import Complexity

class Evaluator:
    def __init__(
        self, extractor: Extractor, weights: Weights, *, words: int, foreign: int, foreign_share: float
    ) -> None: ...
    def score(self, text: str) -> Complexity: ...
