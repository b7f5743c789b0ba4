"""Words for numbers of enums, those of later versions of the mesh too."""

from typing import Any


def word(enum: Any, value: int, prefix: str) -> str:
    """A value of a proto enum as a word of the option it belongs to, such as `lite`; empty for UNSPECIFIED.

    A number that these stubs do not know is a word as it is.
    """
    name: str = enum.Name(value) if value in enum.values() else str(value)
    return "" if name.endswith("_UNSPECIFIED") else name.removeprefix(prefix).lower()
