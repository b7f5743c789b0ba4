"""The head of a GGUF file: what a model says about itself.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MAGIC: Final = b"GGUF"
_SCALARS: Final[Mapping[int, struct.Struct]] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING: Final = 8
_ARRAY: Final = 9
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
# More than any model has; what says more is no GGUF file.
_MAX_ENTRIES: Final = 10_000
_MAX_ARRAY: Final = 4_000_000
_CONTROL_TOKEN: Final = 3
_USER_TOKEN: Final = 4


class GgufError(ValueError):
    """The file is no GGUF file, or is cut."""


@dataclass(frozen=True, slots=True)
class GgufHead:
    """`metadata` by key, as in the file; arrays are lists."""

    metadata: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The model's own name; may be empty."""
        return str(self.metadata.get("general.name", ""))

    @property
    def licence(self) -> str:
        """Licence as the file says it, such as `apache-2.0`; may be empty."""
        return str(self.metadata.get("general.license", ""))

    @property
    def has_chat_template(self) -> bool:
        """False for base models, which only continue text."""
        return "tokenizer.chat_template" in self.metadata

    @property
    def context_tokens(self) -> int:
        """Context that the model was trained for; 0 when it does not say."""
        architecture = self.metadata.get("general.architecture", "")
        return int(self.metadata.get(f"{architecture}.context_length", 0))

    @property
    def longest_token_chars(self) -> int:
        """Characters of the longest token: no text has fewer tokens than its length over this; at least 1."""
        return max(map(len, self.metadata.get("tokenizer.ggml.tokens", ())), default=1) or 1

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Spellings of the tokens that steer the model, and of user-defined ones that look like them."""
        tokens = self.metadata.get("tokenizer.ggml.tokens", [])
        kinds = self.metadata.get("tokenizer.ggml.token_type", [])
        return tuple(
            token
            for token, kind in zip(tokens, kinds, strict=False)
            if kind == _CONTROL_TOKEN or (kind == _USER_TOKEN and _looks_like_control(token))
        )


def _looks_like_control(token: str) -> bool:
    return token.startswith("<|") or token in {"<start_of_turn>", "<end_of_turn>", "<s>", "</s>"}


def read_head(path: Path) -> GgufHead:
    """Read the metadata of a file. Raises GgufError and OSError."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise GgufError(f"{path} is no GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            reader = _Reader(view)
            try:
                return GgufHead(reader.read_metadata())
            except (struct.error, UnicodeDecodeError, KeyError, RecursionError) as error:
                raise GgufError(f"{path} is no valid GGUF file, or is cut") from error


class _Reader:
    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self._at = len(MAGIC)

    def _take(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self._view, self._at)
        self._at += form.size
        return value

    def _take_string(self) -> str:
        size = self._take(_U64)
        end = self._at + size
        if end > len(self._view):
            raise struct.error("a string passes the end of the file")
        text = self._view[self._at : end].decode()
        self._at = end
        return text

    def _take_value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._take_string()
        if kind == _ARRAY:
            inner, count = self._take(_U32), self._take(_U64)
            if count > _MAX_ARRAY:
                raise struct.error("an array is longer than any model needs")
            if inner in _SCALARS:
                form = struct.Struct(f"<{count}{_SCALARS[inner].format[1:]}")
                values = list(form.unpack_from(self._view, self._at))
                self._at += form.size
                return values
            return [self._take_value(inner) for _ in range(count)]
        return self._take(_SCALARS[kind])

    def read_metadata(self) -> dict[str, Any]:
        version = self._take(_U32)
        if version not in {2, 3}:
            raise struct.error(f"version {version}")
        self._take(_U64)  # tensors
        count = self._take(_U64)
        if count > _MAX_ENTRIES:
            raise struct.error("more metadata than any model has")
        return {self._take_string(): self._take_value(self._take(_U32)) for _ in range(count)}
