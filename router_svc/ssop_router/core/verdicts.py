"""Verdicts as words. A node of a later version may say one whose number has no name here: it ends no request."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ssop.v1.frame_pb2 import Verdict

_PREFIX: Final = "VERDICT_"
_NAMES: Final[Mapping[int, str]] = MappingProxyType({number: name for name, number in Verdict.items()})


def name_verdict(verdict: Verdict.ValueType) -> str:
    """Its name in the enum; VERDICT_UNKNOWN where it has none."""
    return _NAMES.get(verdict, "VERDICT_UNKNOWN")


def shorten_verdict(verdict: Verdict.ValueType) -> str:
    """`ok`, `invalid`, `incomplete` or `unknown`; empty where none was said."""
    return name_verdict(verdict).removeprefix(_PREFIX).lower() if verdict else ""
