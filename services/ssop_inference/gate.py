"""The schema gate: llguidance itself, the library that the engine compiles grammars with.

The engine generates without any constraint when it can't compile a grammar, so every schema is tried here first.
"""

import llguidance


class SchemaGate:
    """Callable as `core.constraint.Gate`."""

    def __init__(self) -> None:
        self._tokenizer = llguidance.LLTokenizer("byte")

    def __call__(self, schema: str) -> str:
        """ "" when the schema can be compiled, else the library's reason."""
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        except ValueError as error:
            return str(error)
        return str(llguidance.LLMatcher.validate_grammar(grammar, self._tokenizer))
