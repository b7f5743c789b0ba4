"""A post as the queue holds it: JSON of its members, without those that say nothing."""

from dataclasses import fields
from typing import Any, Final

from pydantic_core import from_json, to_json

from ssop_opinion.core.post import Post

_MEMBERS: Final = tuple(field.name for field in fields(Post))


def write_payload(post: Post) -> bytes:
    """The bytes of a post."""
    return to_json({name: value for name in _MEMBERS if (value := getattr(post, name)) not in ("", 0)})


def read_payload(data: bytes) -> Post:
    """The post of such bytes. Members that a later version wrote are left out. Raises ValueError."""
    found: Any = from_json(data)
    if not isinstance(found, dict):
        raise ValueError("the payload is no object")  # noqa: TRY004 - what is read is data, not an argument
    try:
        return Post(**{"received_ms": 0, **{name: found[name] for name in _MEMBERS if name in found}})
    except TypeError as error:
        raise ValueError("the payload lacks members") from error
