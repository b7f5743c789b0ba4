from typing import Any, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])

def make(kind: type[T], fields: tuple[Any, ...]) -> T: ...
