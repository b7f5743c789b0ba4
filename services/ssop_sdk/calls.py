"""What both clients do before a call: requests and answers from arguments."""

from collections.abc import Mapping
from typing import Any

from ssop.v1.router_pb2 import CheckSchemaRequest, ResumeRequest
from ssop_sdk.answer import Answer
from ssop_sdk.configuration import Setup
from ssop_sdk.request import UNSET, Plan, Unset, check_request_id
from ssop_sdk.schema import SchemaLike, read_schema
from ssop_sdk.stream_base import StreamBase


def answer_of(plan: Plan) -> Answer:
    """The answer to a request, before its first chunk."""
    return Answer(
        plan.request.request_id,
        load=plan.schema.load if plan.schema is not None else None,
        allow_degraded=plan.allow_degraded,
        max_degraded_level=plan.max_degraded_level,
    )


def plan_resume(
    setup: Setup,
    request_id: str,
    *,
    after_seq: int | None,
    previous: StreamBase | None,
    output_schema: "SchemaLike | Unset",
    allow_degraded: bool | None,
) -> tuple[ResumeRequest, Answer]:
    """The request that goes on with an answer, and the answer as far as it is known."""
    check_request_id(request_id)
    if after_seq is not None and after_seq < 0:
        raise ValueError("after_seq is a sequence number, from 0")
    if previous is not None:
        if previous.request_id != request_id:
            raise ValueError("`previous` is the stream of another request")
        if after_seq not in (None, previous.last_seq):
            raise ValueError("`previous` goes on after its own last frame; leave after_seq out")
        return ResumeRequest(request_id=request_id, after_seq=previous.last_seq), previous.reopen()
    schema = setup.defaults.schema if output_schema is UNSET else read_schema(output_schema)
    answer = Answer(
        request_id,
        load=schema.load if schema is not None else None,
        allow_degraded=setup.defaults.allow_degraded if allow_degraded is None else allow_degraded,
        max_degraded_level=setup.defaults.max_degraded_level,
        shown_seq=after_seq or 0,
    )
    return ResumeRequest(request_id=request_id, after_seq=0), answer


def check_schema_request(output_schema: SchemaLike, stream_buffer_size: int) -> CheckSchemaRequest:
    """The request that asks what the mesh makes of a schema. Raises TypeError for what is none."""
    schema = read_schema(output_schema)
    if schema is None:
        raise TypeError("there is no schema to check")
    return CheckSchemaRequest(output_schema=schema.message, stream_buffer_size=stream_buffer_size)


def item_arguments(item: Any, output_schema: "SchemaLike | Unset", options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `generate` for an item of a batch: a prompt, or a mapping with the key `prompt`."""
    arguments: dict[str, Any] = {"output_schema": output_schema, **options}
    if isinstance(item, Mapping):
        if "prompt" not in item:
            raise TypeError("an item is a prompt, or a mapping with the key `prompt`")
        return arguments | dict(item)
    return arguments | {"prompt": item}
