"""The schema of posts and the prompts, as they ship with the package and as a tenant changes them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final

from ssop_codec import Encoder, FinishReason, Schema, Verdict, compile_schema
from ssop_opinion.core.prompt import Example, PromptText
from ssop_opinion.core.wording import Language

SCHEMA_ID: Final = "ssop-opinion/post/1"
LANGUAGES: Final[tuple[Language, ...]] = ("en", "zh")
MAX_EXAMPLES: Final = 12
"""Of one language; each costs the model some hundred tokens of its context."""


class PromptError(ValueError):
    """A prompt or an example that can't be used; the text says which and why, and quotes no post."""


@dataclass(frozen=True, slots=True)
class PostSchema:
    """The schema of analyses. `id` names it with its version, `hash` is the SHA-256 of its canonical form, in hex."""

    document: Mapping[str, Any]
    compiled: Schema
    id: str
    hash: str

    def check(self, answer: Mapping[str, Any]) -> str:
        """Why an answer does not conform; empty where it does."""
        encoder = Encoder(self.compiled)
        encoder.feed(json.dumps(answer, ensure_ascii=False).encode())
        encoder.finish(finish_reason=int(FinishReason.STOP))
        violation = encoder.violation
        if violation is not None:
            return f"{violation.rule} at {violation.pointer or '/'}"
        return "" if encoder.verdict == Verdict.OK else "incomplete"


@cache
def post_schema() -> PostSchema:
    """The shipped schema of twelve fields: the entity first, then what alerts go by."""
    text = (resources.files("ssop_opinion.prompts") / "post_schema.json").read_text(encoding="utf-8")
    compiled = compile_schema(text)
    return PostSchema(json.loads(text), compiled, SCHEMA_ID, compiled.hash.hex())


@cache
def shipped_prompts() -> Mapping[Language, PromptText]:
    """The shipped prompts, by language."""
    return {language: _read(language) for language in LANGUAGES}


def _read(language: str) -> PromptText:
    text = (resources.files("ssop_opinion.prompts") / f"{language}.json").read_text(encoding="utf-8")
    found = json.loads(text)
    examples = tuple(Example(one["text"], one["answer"], tuple(one.get("brands", ()))) for one in found["examples"])
    if (other := found.get("begins_like")) is not None:
        # A beginning in common: a model that has just read it for one language need not read it again for the other.
        examples = (*_read(other).examples, *examples)
    return PromptText(found["system"], found["user"], found["brands"], found["hint"], found["event_hint"], examples)


def tailor(
    instruction: str, examples: Iterable[tuple[Language, Example]], *, has_shipped_examples: bool
) -> Mapping[Language, PromptText]:
    """The prompts of a tenant: an instruction after the shipped one, and its examples after, or instead of, those.

    Raises PromptError for an example whose answer is none, and for too many.
    """
    made: dict[Language, PromptText] = {}
    own = list(examples)
    for language, prompt in shipped_prompts().items():
        kept = prompt.examples if has_shipped_examples else ()
        added = tuple(example for spoken, example in own if spoken == language)
        if len(kept) + len(added) > MAX_EXAMPLES:
            raise PromptError(f"more than {MAX_EXAMPLES} examples in '{language}'")
        for number, example in enumerate(added, 1):
            if fault := post_schema().check(example.answer):
                raise PromptError(f"example {number} in '{language}' has an answer that breaks the schema: {fault}")
        system = f"{prompt.system} {instruction}".strip()
        made[language] = replace(prompt, system=system, examples=(*kept, *added))
    return made
