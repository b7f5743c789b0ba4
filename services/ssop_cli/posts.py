"""Posts to analyse, and the schema and prompt that the analysis uses unless others are given."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from ssop_cli.failure import EXIT_USAGE, CommandError

MAX_POST_CHARS: Final = 20_000


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
        raise CommandError(f"{source} can't be read: {error}", exit_code=EXIT_USAGE) from error
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
    source: Traversable = shipped("post_schema.json") if path is None else path
    return read_object(source)


def read_object(source: Traversable) -> dict[str, Any]:
    """A file that holds one JSON object. Raises CommandError."""
    try:
        found = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{source} can't be read as JSON: {error}", exit_code=EXIT_USAGE) from error
    if not isinstance(found, dict):
        raise CommandError(f"{source} is not a JSON object", exit_code=EXIT_USAGE)
    return found


def read_prompt() -> Mapping[str, str]:
    """The shipped prompt: `system`, and `user` with `{text}` where the post goes."""
    return read_object(shipped("post_prompt.json"))


def messages_for(post: Post, prompt: Mapping[str, str]) -> list[dict[str, str]]:
    """The conversation that asks for the analysis of a post."""
    # replace, not format: posts hold braces.
    return [
        {"role": "system", "content": prompt["system"]},
        {"role": "user", "content": prompt["user"].replace("{text}", post.text)},
    ]
