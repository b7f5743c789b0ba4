from typing import final

from .pattern_nfa import Nfa
from .pattern_threads import Dfa

@final
class Pattern:
    text: str
    work: int
    kept_states: int
    def __init__(self, text: str, nfa: Nfa, dfa: Dfa | None = None, kept_bytes: int = ...) -> None: ...
    def search(self, text: str) -> bool: ...
