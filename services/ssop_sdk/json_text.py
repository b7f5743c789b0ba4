"""JSON text of an answer's values, numbers exact."""

import json
from decimal import Decimal
from typing import Any


def dump_json(value: Any) -> str:
    """JSON text. The codec gives numbers that no double holds as Decimal, which the standard library can't write."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:
        return _dump(value)


def _dump(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {_dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
