"""Protobuf's enums at the price of an attribute.

The wrapper that protobuf generates for an enum searches its descriptor each time that a value is named, which costs
as much as a call of a function that does something. What it would find is put where attributes are found at once.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_PACKAGE: Final = "ssop.v1."


class _Names(dict[int, str]):
    """Names by number; a number that has none is protobuf's to refuse."""

    def __init__(self, names: dict[int, str], refuse: Callable[[Any], str]) -> None:
        super().__init__(names)
        self._refuse = refuse

    def __missing__(self, number: Any) -> str:
        return self._refuse(number)


def quicken_enums() -> int:
    """Prepare the enums of the API that are imported by now; how many there are."""
    found = 0
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE):
            for wrapper in vars(module).values():
                if isinstance(wrapper, EnumTypeWrapper):
                    _quicken(wrapper)
                    found += 1
    return found


def _quicken(wrapper: EnumTypeWrapper) -> None:
    held: Any = wrapper.__dict__
    if "Name" in held:
        return
    values = wrapper.items()
    # The first of two names for a number is the one that protobuf gives.
    names = {number: name for name, number in reversed(values)}
    refuse = wrapper.Name
    held.update(values)
    held["Name"] = _Names(names, refuse).__getitem__
