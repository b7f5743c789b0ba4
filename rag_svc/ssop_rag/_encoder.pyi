from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ssop_rag.e5_encoder import Layer, Norm

def is_supported() -> bool: ...

class Encoder:
    def __new__(
        cls,
        *,
        words: NDArray[np.uint8],
        positions: NDArray[np.float32],
        norm: Norm,
        layers: Sequence[Layer],
        width: int,
        inner: int,
        epsilon: float,
    ) -> Encoder: ...
    def encode(self, ids: NDArray[np.int32], lengths: NDArray[np.int32]) -> NDArray[np.float32]: ...
