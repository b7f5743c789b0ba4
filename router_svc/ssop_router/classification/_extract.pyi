import numpy as np
from numpy.typing import NDArray

class Extractor:
    width: int
    def __init__(self, words: dict[str, int], categories: int, bits: int, head_chars: int, tail_chars: int) -> None: ...
    def extract(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]: ...
