"""Posts to analyse, and the schema and prompt that the analysis uses unless others are given."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from ssop_cli.failure import EXIT_SETTINGS, EXIT_USAGE, CommandError, cause_of
from ssop_opinion.core.prompt import build_messages, pick_prompt
from ssop_opinion.core.wording import even_out, find_language
from ssop_opinion.hint.model import HintError, shipped_hint
from ssop_opinion.prompting import post_schema, tailor

MAX_POST_CHARS: Final = 20_000
OWN_SCHEMA_SYSTEM: Final = "You analyse posts for opinion monitoring. Answer with one JSON object."


@dataclass(frozen=True, slots=True)
class Post:
    """A post of a file."""

    id: str
    text: str
    lang: str = ""


def shipped(name: str) -> Traversable:
    """A file that ships with this package."""
    return resources.files("ssop_cli.data") / name


def read_posts(path: Path | None, limit: int | None) -> list[Post]:
    """Posts of a JSON-lines file with `text` and, if the file has it, `id`; None is the shipped file.

    Raises CommandError that names the line at fault.
    """
    source: Traversable = shipped("posts.jsonl") if path is None else path
    try:
        lines = source.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{source} can't be read: {cause_of(error)}", exit_code=EXIT_USAGE) from error
    posts: list[Post] = []
    for post in _parse(lines, str(source)):
        if limit is not None and len(posts) >= limit:
            break
        posts.append(post)
    if not posts:
        raise CommandError(f"{source} holds no posts", exit_code=EXIT_USAGE)
    return posts


def _parse(lines: Sequence[str], source: str) -> Iterator[Post]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            text = entry["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(
                f'{source}, line {number}: needs a JSON object with a "text"', exit_code=EXIT_USAGE
            ) from error
        if not isinstance(text, str) or not 0 < len(text) <= MAX_POST_CHARS:
            raise CommandError(
                f'{source}, line {number}: "text" must be a string of 1 to {MAX_POST_CHARS} characters',
                exit_code=EXIT_USAGE,
            )
        yield Post(str(entry.get("id", f"line-{number}")), text, str(entry.get("lang", "")))


def read_schema(path: Path | None) -> dict[str, Any]:
    """A schema file as JSON; None is the shipped schema of posts. Raises CommandError."""
    return dict(post_schema().document) if path is None else read_object(path)


def read_object(source: Traversable) -> dict[str, Any]:
    """A file that holds one JSON object. Raises CommandError."""
    try:
        found = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{source} can't be read: {cause_of(error)}", exit_code=EXIT_USAGE) from error
    except ValueError as error:
        raise CommandError(f"{source} can't be read as JSON: {error}", exit_code=EXIT_USAGE) from error
    if not isinstance(found, dict):
        raise CommandError(f"{source} is not a JSON object", exit_code=EXIT_USAGE)
    return found


class Asker:
    """Makes the conversation that asks for the analysis of a post, as the opinion application does for new tenants.

    With a schema of the user's own there is no hint, which speaks of the shipped fields.
    """

    def __init__(self, *, has_own_schema: bool = False) -> None:
        """Raises CommandError where the sentiment model can't be used."""
        self._prompts = tailor("", (), has_shipped_examples=False)
        self._has_own_schema = has_own_schema
        try:
            self._hint = None if has_own_schema else shipped_hint()
        except HintError as error:
            raise CommandError(str(error), exit_code=EXIT_SETTINGS, reason="SETTINGS") from error

    def messages_for(self, post: Post) -> list[dict[str, str]]:
        """The conversation about a post."""
        text = even_out(post.text) or post.text
        prompt = pick_prompt(self._prompts, find_language(text))
        if self._has_own_schema:
            prompt = replace(prompt, system=OWN_SCHEMA_SYSTEM)
        return build_messages(prompt, text, hint=self._hint.judge(text) if self._hint is not None else None)
