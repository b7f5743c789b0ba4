from collections.abc import Iterable, Sequence

from .wire import PathStep

Scalar = str | int | float | bool | bytes | None

def encode_frame(
    seq: int,
    kind: int,
    value: Scalar = None,
    *,
    node: int = 0,
    path: Sequence[PathStep] = (),
    parts: int = 0,
    document: int = 0,
    is_array: bool = False,
) -> bytes: ...
def encode_values(
    first_seq: int, values: Iterable[tuple[int, Sequence[PathStep], Scalar]], *, document: int = 0
) -> bytes: ...
