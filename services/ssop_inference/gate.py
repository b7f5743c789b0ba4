"""The schema gate: llguidance itself, the library that the engine compiles grammars with.

The engine generates without any constraint when it can't compile a grammar, so every schema is tried here first.
"""

from typing import Final

import llguidance

_STEPS: Final = 64
# The way into as many containers as possible, since those are what is complex.
_DEEPER: Final = b'{["'


class SchemaGate:
    """Callable as `core.constraint.Gate`."""

    def __init__(self) -> None:
        self._tokenizer = llguidance.LLTokenizer("byte")

    def __call__(self, schema: str) -> str:
        """ "" when the schema can be compiled and a document of it begun, else the library's reason."""
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        except ValueError as error:
            return str(error)
        return self.try_grammar(grammar)

    def try_grammar(self, grammar: str) -> str:
        """The same for a grammar."""
        return str(llguidance.LLMatcher.validate_grammar(grammar, self._tokenizer)) or self._begin(grammar)

    def _begin(self, grammar: str) -> str:
        """Write the first bytes of a document: some grammars compile and then are too complex for the parser."""
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        for _ in range(_STEPS):
            allowed = _allowed(matcher.compute_bitmask())
            if matcher.is_error():
                return str(matcher.get_error()).split("\n", 1)[0]
            if matcher.is_stopped() or not allowed:
                break
            matcher.consume_token(next((byte for byte in _DEEPER if byte in allowed), min(allowed)))
        return ""


def _allowed(mask: bytes) -> set[int]:
    return {byte for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1}
