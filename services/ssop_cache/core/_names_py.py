"""The slow twin of `_names`: by a pattern and a number.

It is the oracle of the tests, and what an installation without compiled code runs on.
"""

import re
from typing import Final

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def is_request_id(text: str) -> bool:
    """Whether it is 1 to 64 characters of [A-Za-z0-9._:-]."""
    return _REQUEST_ID.fullmatch(text) is not None


def mark_question(cache_key: bytes, tokens: int) -> str:
    """16 hexadecimal digits by which a question is told from another. The key is a hash; `tokens` has 64 bits."""
    return f"{int.from_bytes(cache_key[-8:], 'big') ^ tokens:016x}"


def name_key(prefix: str, cache_key: bytes) -> str:
    """The prefix, and behind it the key in hexadecimal digits."""
    return prefix + cache_key.hex()
