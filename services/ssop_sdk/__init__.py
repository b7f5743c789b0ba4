"""The Python client of SSOP Mesh: validated model output, field by field, while it is being generated.

```python
from ssop_sdk import SsopClient

SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "score": {"type": "number"}},
    "required": ["summary", "score"],
}

with SsopClient(api_key="sk-...", target="127.0.0.1:7300", output_schema=SCHEMA) as client:
    with client.generate("Summarise the incident report: ...") as stream:
        result = {}
        for frame in stream:
            result.update(frame.delta)      # a dict, never a string
    # Getting here means that the verdict on the whole is good; else the loop has raised.

    # Or at once, and in the caller's own type where `output_schema` is a Pydantic model.
    answer = client.generate("Summarise the next one: ...").result()
```

`AsyncSsopClient` is the same for asyncio, and has sessions, on which a prompt arrives in pieces. `client.index` holds
the documents that answers draw on, and `stream.sources` says which did. `GrokClient` and
`client.chat.completions.create` have the shape that users of OpenAI's client know. All errors are `SsopError`.
`LocalRouter` chooses among model servers in this process, for applications that talk to them directly; it needs the
extra `server`. The package imports gRPC, protobuf and the codec only; Pydantic or msgspec where a schema is one of
their types, and the router's core for LocalRouter.
"""

from typing import TYPE_CHECKING, Any

from ssop_codec import Frame
from ssop_sdk.answer import ToolCallResult
from ssop_sdk.async_client import AsyncSsopClient
from ssop_sdk.async_stream import AsyncStream
from ssop_sdk.chat import Completion
from ssop_sdk.client import SsopClient
from ssop_sdk.documents import Document, Found, IndexReport, Source
from ssop_sdk.errors import (
    Aborted,
    AuthenticationError,
    CacheMiss,
    Cancelled,
    CollectionUnknown,
    ConfigurationError,
    ContentUnsupported,
    ContextExceeded,
    DeadlineExceeded,
    DegradedAnswer,
    DegradedRefused,
    FrameLoss,
    GenerationInterrupted,
    InternalError,
    KeyExists,
    KeyUnknown,
    LimitExceeded,
    MessageTooLarge,
    ModelUnknown,
    NotFound,
    OutputError,
    OutputIncomplete,
    OutputInvalid,
    Overloaded,
    PermissionDenied,
    PolicyInvalid,
    ProtocolError,
    QuotaExhausted,
    RateLimited,
    RequestDuplicate,
    RequestInvalid,
    RequestUnknown,
    SchemaRefused,
    ScopeMissing,
    SsopError,
    Unavailable,
    Unsupported,
)
from ssop_sdk.request import UNSET, GenerateOptions
from ssop_sdk.retry import RetryPolicy
from ssop_sdk.session import AsyncSession, SessionStream
from ssop_sdk.stream import Stream
from ssop_sdk.target import VERSION, Tls

if TYPE_CHECKING:
    from ssop_router.local import Choice as Choice
    from ssop_router.local import LocalNode as LocalNode
    from ssop_router.local import LocalRouter as LocalRouter

GrokClient = SsopClient
"""`SsopClient` under the name that existing applications import."""
AsyncGrokClient = AsyncSsopClient
"""`AsyncSsopClient` under the name that existing applications import."""

__version__ = VERSION

__all__ = [
    "UNSET",
    "Aborted",
    "AsyncGrokClient",
    "AsyncSession",
    "AsyncSsopClient",
    "AsyncStream",
    "AuthenticationError",
    "CacheMiss",
    "Cancelled",
    "CollectionUnknown",
    "Completion",
    "ConfigurationError",
    "ContentUnsupported",
    "ContextExceeded",
    "DeadlineExceeded",
    "DegradedAnswer",
    "DegradedRefused",
    "Document",
    "Found",
    "Frame",
    "FrameLoss",
    "GenerateOptions",
    "GenerationInterrupted",
    "GrokClient",
    "IndexReport",
    "InternalError",
    "KeyExists",
    "KeyUnknown",
    "LimitExceeded",
    "MessageTooLarge",
    "ModelUnknown",
    "NotFound",
    "OutputError",
    "OutputIncomplete",
    "OutputInvalid",
    "Overloaded",
    "PermissionDenied",
    "PolicyInvalid",
    "ProtocolError",
    "QuotaExhausted",
    "RateLimited",
    "RequestDuplicate",
    "RequestInvalid",
    "RequestUnknown",
    "RetryPolicy",
    "SchemaRefused",
    "ScopeMissing",
    "SessionStream",
    "Source",
    "SsopClient",
    "SsopError",
    "Stream",
    "Tls",
    "ToolCallResult",
    "Unavailable",
    "Unsupported",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """`LocalRouter` and what belongs to it, which need the router's packages; loaded when first asked for."""
    if name in ("Choice", "LocalNode", "LocalRouter"):
        from ssop_sdk.local import load_local  # noqa: PLC0415

        return load_local(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
