"""Compiles the regular expressions of `pattern` and `patternProperties`, and keeps those used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from ._pattern import Pattern
from .errors import SchemaError
from .limits import Limits
from .pattern_nfa import build
from .pattern_syntax import PatternError, parse
from .pattern_threads import complete

CACHED_PATTERNS: Final = 256
"""Each holds at most a few MiB of states, most of them a few KiB."""
MAX_LOOKAHEAD_WORK: Final = 200_000
"""Threads followed while the automaton of a pattern with lookaheads is made: some tenths of a second."""

_Key = tuple[str, int, int]
_cache: OrderedDict[_Key, Pattern] = OrderedDict()
_lock: Final = threading.Lock()


def compile_pattern(text: str, *, limits: Limits | None = None, pointer: str = "") -> Pattern:
    """The automaton of a regular expression of ECMA-262 in Unicode mode, which searches as JSON Schema demands.

    Raises SchemaError at `pointer` with the keyword `pattern`, or that of the cap: `max_pattern_chars`,
    `max_pattern_states`, `max_pattern_depth`.
    """
    limits = limits or Limits()
    if len(text) > limits.max_pattern_chars:
        raise SchemaError(pointer, "max_pattern_chars", f"more than {limits.max_pattern_chars} characters")
    key = (text, limits.max_pattern_states, limits.max_pattern_depth)
    with _lock:
        pattern = _cache.get(key)
        if pattern is not None:
            _cache.move_to_end(key)
            return pattern
    try:
        pattern = _compile(text, limits)
    except PatternError as error:
        raise SchemaError(pointer, error.keyword, str(error)) from None
    with _lock:
        _cache[key] = pattern
        if len(_cache) > CACHED_PATTERNS:
            _cache.popitem(last=False)
    return pattern


def _compile(text: str, limits: Limits) -> Pattern:
    nfa = build(parse(text, max_depth=limits.max_pattern_depth), max_states=limits.max_pattern_states)
    if not nfa.looks:
        return Pattern(text, nfa)
    dfa = complete(nfa, max_states=limits.max_pattern_states, max_work=MAX_LOOKAHEAD_WORK)
    return Pattern(text, nfa, dfa)
