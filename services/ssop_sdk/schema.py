"""What callers give as a schema, and what the whole answer becomes because of it.

The mesh is the judge of a schema. Here only what can't be one at all is refused, and at once.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ssop.v1.content_pb2 import OutputSchema
from ssop_sdk.json_text import dump_json

SchemaLike = Any
"""JSON Schema as a mapping, JSON text or UTF-8 bytes; a Pydantic model, a `TypeAdapter`, or a type that Pydantic
takes (a dataclass, a TypedDict, `list[int]`); a `msgspec.Struct`; an `ssop.v1.OutputSchema`."""


def _identity(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerSchema:
    """A schema as it travels, and the function that makes the caller's type of the whole answer."""

    message: OutputSchema
    load: Callable[[Any], Any] = _identity


def _dump(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _of_adapter(adapter: Any) -> AnswerSchema:
    # Pydantic's JSON mode, because the answer is JSON: dates, UUIDs and enums come as strings.
    return AnswerSchema(
        OutputSchema(json_schema=_dump(adapter.json_schema())),
        lambda value: adapter.validate_json(dump_json(value)),
    )


def _of_model(model: Any) -> AnswerSchema:
    return AnswerSchema(
        OutputSchema(json_schema=_dump(model.model_json_schema())),
        lambda value: model.model_validate_json(dump_json(value)),
    )


def _of_struct(struct: type) -> AnswerSchema:
    # Whoever has such a class has the library; nobody else needs it.
    import msgspec  # noqa: PLC0415

    decoder: Any = msgspec.json.Decoder(struct)

    def load(value: Any) -> Any:
        try:
            return decoder.decode(dump_json(value))
        except msgspec.ValidationError as error:
            # As Pydantic's is one: what a batch counts as the fault of one item.
            raise ValueError(str(error)) from error

    return AnswerSchema(OutputSchema(json_schema=_dump(msgspec.json.schema(struct))), load)


def _is_typed(schema: Any) -> bool:
    if isinstance(schema, types.GenericAlias | types.UnionType) or typing.get_origin(schema) is not None:
        return True
    # `typing.is_typeddict` does not know the TypedDict of typing_extensions, which Pydantic asks for before 3.12.
    is_typed_dict = hasattr(schema, "__required_keys__") and hasattr(schema, "__total__")
    return isinstance(schema, type) and (dataclasses.is_dataclass(schema) or is_typed_dict)


def read_schema(schema: SchemaLike, *, format_assertion: bool | None = None) -> AnswerSchema | None:
    """Take a schema in any of the forms of `SchemaLike`; None is plain text.

    Raises TypeError for what can't be a schema, ValueError for mappings that are no JSON. Raises what Pydantic
    and msgspec raise where a type has no JSON Schema.
    """
    answer = _read(schema)
    if answer is not None and format_assertion is not None:
        message = OutputSchema()
        message.CopyFrom(answer.message)
        message.format_assertion = format_assertion
        return AnswerSchema(message, answer.load)
    return answer


def _read(schema: Any) -> AnswerSchema | None:
    if schema is None or isinstance(schema, AnswerSchema):
        return schema
    if isinstance(schema, OutputSchema):
        return AnswerSchema(schema)
    text = _text_of(schema)
    return AnswerSchema(OutputSchema(json_schema=text)) if text is not None else _of_type(schema)


def _text_of(schema: Any) -> str | None:
    """JSON text of a schema that is given as text or as plain values; None for anything else."""
    if isinstance(schema, bytes | bytearray | memoryview):
        schema = bytes(schema).decode("utf-8")
    if isinstance(schema, str):
        if not schema.strip():
            raise ValueError("the schema is empty; give None for plain text")
        return schema
    if isinstance(schema, Mapping):
        return _dump(dict(schema))
    return _dump(schema) if isinstance(schema, bool) else None


def _of_type(schema: Any) -> AnswerSchema:
    if isinstance(schema, type) and hasattr(schema, "model_json_schema"):
        return _of_model(schema)
    if hasattr(schema, "json_schema") and hasattr(schema, "validate_json"):
        return _of_adapter(schema)
    if isinstance(schema, type) and hasattr(schema, "__struct_fields__"):
        return _of_struct(schema)
    if _is_typed(schema):
        # Pydantic is an extra of the distribution, and most callers need no more than a mapping.
        from pydantic import TypeAdapter  # noqa: PLC0415

        return _of_adapter(TypeAdapter(schema))
    raise TypeError(
        "output_schema is a mapping, JSON text, bytes, a Pydantic model or type or a msgspec.Struct, "
        f"not {type(schema).__name__}"
    )
