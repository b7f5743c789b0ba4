"""Compiled schemas, kept by their text, so that a schema that comes with every request is compiled once."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ssop.v1.content_pb2 import OutputSchema, Prompt
from ssop_chassis.errors import MeshError, as_mesh_error, invalid_request
from ssop_codec import Limits, Schema, SchemaError, compile_schema

# Longer texts are known by their hash, since refused ones are kept too: a thousand of a megabyte are none to hold.
_MOST_KEPT_CHARS: Final = 8_192


class SchemaCache:
    """Least recently used schemas; refusals are kept too, so that a bad schema costs once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[tuple[bool, str | bytes], Schema | MeshError] = OrderedDict()

    def of_prompt(self, prompt: Prompt) -> Schema | None:
        """The compiled schema of a prompt; None for plain text. Checks those of its tools.

        Raises SCHEMA_REFUSED, and REQUEST_INVALID where the tools together hold more than one schema may.
        """
        if prompt.tools:
            self._check_tools([tool.parameters_schema for tool in prompt.tools if tool.parameters_schema])
        return self.compile(prompt.output_schema) if prompt.HasField("output_schema") else None

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
        is_asserted = source.format_assertion if source.HasField("format_assertion") else True
        text = source.json_schema
        key = (is_asserted, text if len(text) <= _MOST_KEPT_CHARS else hashlib.sha256(text.encode()).digest())
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _compile(text, is_asserted)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        if isinstance(entry, MeshError):
            # A fresh one for each caller: a raised exception collects tracebacks.
            raise MeshError(entry.reason, entry.message, metadata=entry.metadata, fields=entry.fields)
        return entry


def _compile(text: str, is_asserted: bool) -> Schema | MeshError:
    try:
        return compile_schema(text, format_assertion=is_asserted)
    except SchemaError as error:
        return as_mesh_error(error)
