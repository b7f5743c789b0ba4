"""The body of POST /v1/generate, and the request that it becomes, with the SDK's names and ranges."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from ssop_gateway.core.faults import EdgeError, invalid
from ssop_sdk.errors import SsopError
from ssop_sdk.messages import read_messages, read_tool_choice, read_tools
from ssop_sdk.request import Defaults, Plan, plan_request

UInt32 = Annotated[int, Field(ge=0, lt=2**32)]
_OWN: Final = frozenset({"prompt", "messages", "output_schema", "streaming", "timeout_ms", "request_id"})


class GenerateBody(BaseModel):
    """What to generate. Exactly one of `prompt` and `messages` is given."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str | None = Field(None, description="A text; one message of the user.")
    messages: list[dict[str, Any]] | None = Field(
        None, description="Messages with `role` and `content`, as OpenAI's API has them."
    )
    output_schema: dict[str, Any] | bool | str | None = Field(
        None, description="JSON Schema of the answer. Needs the content type application/x-ssop+json."
    )
    streaming: bool = Field(True, description="False: one JSON document at the end.")
    model: str = Field("", max_length=256, description="A model's name; empty or `auto`: the router's choice.")
    policy: str | None = Field(None, max_length=256, description="As the header x-router-policy, which it overrides.")
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: UInt32 = 0
    seed: int | None = Field(None, ge=0, lt=2**64)
    max_output_tokens: UInt32 = Field(0, description="0: the model's configured limit.")
    stop: str | list[str] | None = Field(None, description="Plain text only: at most 4.")
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    resume_window_ms: int = Field(
        0, ge=0, le=600_000, description="How long the answer is kept for GET /v1/generate/ID after its client is gone."
    )
    timeout_ms: int | None = Field(None, gt=0, description="Deadline of the request.")
    request_id: str | None = Field(None, description="As the header x-request-id, which it overrides.")
    conversation_id: str = Field("", max_length=64)
    collections: list[str] = Field([], description="Collections to search; empty: those of the tenant's settings.")
    rag_top_k: UInt32 = 0
    rag_prefetch_ratio: float | None = Field(None, ge=0, le=1)
    allow_sampled_cache: bool = False
    allow_similar_cache: bool = False
    max_cache_age_ms: int = Field(0, ge=0, lt=2**63)
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    debug: bool = False
    logprobs: bool = False
    stream_buffer_size: int | None = Field(None, description="0 (auto) or from 64 to 16384 bytes.")
    linger_ms: int | None = Field(
        None, ge=0, le=1_000, description="Least time between two messages of the answer; null: as the node is set."
    )
    max_degraded_level: int | None = Field(None, ge=0, le=3, description="Deepest degradation that is taken.")
    format_assertion: bool | None = None


def plan_body(body: GenerateBody, *, request_id: str, timeout_ms: int) -> Plan:
    """The request of a body. Raises REQUEST_INVALID, never with content of the prompt."""
    if (body.prompt is None) == (body.messages is None):
        raise invalid("prompt", "give exactly one of `prompt` and `messages`")
    given = {name: getattr(body, name) for name in body.model_fields_set - _OWN}
    if given.get("model") == "auto":
        given["model"] = ""
    prompt: Any = body.prompt if body.prompt is not None else body.messages
    return plan(prompt, body.output_schema, given, request_id=request_id, timeout_ms=timeout_ms)


def plan(prompt: Any, output_schema: Any, options: Mapping[str, Any], *, request_id: str, timeout_ms: int) -> Plan:
    """A request from what `generate` takes. Raises REQUEST_INVALID."""
    try:
        messages = read_messages(prompt)
        tools = read_tools(options.get("tools") or ())
        choice = read_tool_choice(options.get("tool_choice"))
    except UnicodeError:
        raise invalid("messages", "holds text that is no Unicode") from None
    except (TypeError, ValueError) as error:
        # The SDK's own texts name a place and never quote content.
        raise EdgeError("REQUEST_INVALID", str(error)) from None
    except RecursionError:
        raise invalid("messages", "is nested too deeply") from None
    try:
        return plan_request(
            Defaults(allow_degraded=True),
            messages,
            output_schema,
            options={
                **options,
                "tools": tools,
                "tool_choice": choice,
                "request_id": request_id,
                "timeout_s": timeout_ms / 1000,
            },
        )
    except SsopError as error:
        raise EdgeError("REQUEST_INVALID", error.message) from None
    except RecursionError:
        raise invalid("output_schema", "is nested too deeply") from None
    except (TypeError, ValueError):
        raise invalid("output_schema", "is no JSON Schema, or an option is out of its range") from None
