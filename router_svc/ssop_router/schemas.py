# cython: annotation_typing=False
"""Compiled schemas, kept by the bytes they come in, so that a schema that comes with every request is compiled once.

`schemas.pxd` gives the types with which this very file is compiled.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ssop.v1.content_pb2 import OutputSchema, Prompt
from ssop_chassis.errors import MeshError, as_mesh_error, invalid_request
from ssop_codec import Limits, Schema, SchemaError, compile_schema
from ssop_router.core.prompt import PromptParts

# Longer texts are known by their hash, since refused ones are kept too: a thousand of a megabyte are none to hold.
_MOST_KEPT_BYTES: Final = 8_192


class SchemaCache:
    """Least recently used schemas; refusals are kept too, so that a bad schema costs once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[bytes | str, Schema | MeshError] = OrderedDict()
        # What was found last, with its bytes: to compare them costs a tenth of what it does to hash them.
        self._latest: tuple[bytes, Schema] | None = None

    def of_prompt(self, prompt: Prompt, parts: PromptParts) -> Schema | None:
        """The compiled schema of a prompt; None for plain text. Checks those of its tools. `parts` are the prompt's.

        Raises SCHEMA_REFUSED, and REQUEST_INVALID where the tools together hold more than one schema may.
        """
        if parts.tools:
            self._check_tools([tool.parameters_schema for tool in prompt.tools if tool.parameters_schema])
        return self._find(parts.schema) if parts.schema is not None else None

    def _check_tools(self, texts: Sequence[str]) -> None:
        # Compiling holds the loop, so all tools of a request may cost it no more than one schema.
        limits = Limits()
        if sum(len(text.encode()) for text in texts) > limits.max_schema_bytes:
            raise invalid_request(
                ("prompt.tools", f"must hold at most {limits.max_schema_bytes} bytes of schemas together")
            )
        nodes = 0
        for text in texts:
            nodes += len(self.compile(OutputSchema(json_schema=text)).nodes)
            if nodes > limits.max_nodes:
                raise invalid_request(("prompt.tools", f"must hold at most {limits.max_nodes} schema nodes together"))

    def compile(self, source: OutputSchema) -> Schema:
        """The compiled schema. Raises SCHEMA_REFUSED."""
        return self._find(source.SerializeToString(deterministic=True))

    def _find(self, wire: bytes) -> Schema:
        """The schema of a serialised OutputSchema. Raises SCHEMA_REFUSED."""
        latest = self._latest
        if latest is not None and latest[0] == wire:
            return latest[1]
        key = wire if len(wire) <= _MOST_KEPT_BYTES else hashlib.sha256(wire).hexdigest()
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _compile(OutputSchema.FromString(wire))
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        if isinstance(entry, MeshError):
            # What was found before is looked for again, so that refusals don't drive it out.
            self._latest = None
            # A fresh one for each caller: a raised exception collects tracebacks.
            raise MeshError(entry.reason, entry.message, metadata=entry.metadata, fields=entry.fields)
        self._latest = (wire, entry) if key is wire else None
        return entry


def _compile(source: OutputSchema) -> Schema | MeshError:
    is_asserted = source.format_assertion if source.HasField("format_assertion") else True
    try:
        return compile_schema(source.json_schema, format_assertion=is_asserted)
    except SchemaError as error:
        return as_mesh_error(error)
