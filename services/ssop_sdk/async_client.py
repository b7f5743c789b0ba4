"""The async client."""

import asyncio
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import grpc
import grpc.aio
from google.protobuf.message import Message

from ssop.v1 import router_pb2 as pb
from ssop.v1 import usage_pb2
from ssop_sdk import connection
from ssop_sdk.answer import Answer
from ssop_sdk.async_stream import AsyncStream
from ssop_sdk.batch import run_batch_async
from ssop_sdk.cache import AsyncCacheAdmin
from ssop_sdk.calls import answer_of, check_schema_request, item_arguments, plan_resume
from ssop_sdk.channels import Attempts, Channels
from ssop_sdk.chat import AsyncChat
from ssop_sdk.configuration import check_batch_size, set_up
from ssop_sdk.index import AsyncIndex
from ssop_sdk.keys import AsyncKeyAdmin
from ssop_sdk.messages import PromptLike
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.request import UNSET, GenerateOptions, Unset, check_request_id, check_timeout, plan_request
from ssop_sdk.retry import RetryPolicy, wait_before_retry_s
from ssop_sdk.schema import SchemaLike
from ssop_sdk.session import AsyncSession
from ssop_sdk.target import Target, Tls, channel_credentials, channel_options

M = TypeVar("M")
P = TypeVar("P", bound=Message)
OpenChannel = Callable[[Target], Any]
"""Opens a channel to a target, in the shape of grpc.aio's."""


class AsyncSsopClient:
    """As `SsopClient`, for asyncio: one channel, one event loop.

    ```python
    async with AsyncSsopClient(output_schema={"type": "object"}) as client:
        async for frame in client.generate("Summarise ..."):
            print(frame.path, frame.value)
    ```

    It may be made anywhere, and belongs to the loop in which it is first used. A process that forks must make its
    clients after the fork.
    """

    def __init__(
        self,
        api_key: str | None = None,
        target: str | None = None,
        *,
        streaming: bool = True,
        output_schema: SchemaLike = None,
        timeout_s: float = 30.0,
        policy: str | None = None,
        max_degraded_level: int | None = None,
        allow_degraded: bool = False,
        stream_buffer_size: int = 0,
        batch_size: int = 4,
        tls: Tls | bool | None = None,
        retry: RetryPolicy | None = None,
        open_channel: OpenChannel | None = None,
    ) -> None:
        """Set up a client; it connects with its first call. The arguments are those of `SsopClient`.

        `open_channel` opens what carries the calls to a router: grpc.aio's channel unless it is given, or one of its
        shape, such as `ssop_transport.channel.NativeChannel`.
        """
        self._setup = set_up(
            api_key=api_key,
            target=target,
            streaming=streaming,
            output_schema=output_schema,
            timeout_s=timeout_s,
            policy=policy,
            max_degraded_level=max_degraded_level,
            allow_degraded=allow_degraded,
            stream_buffer_size=stream_buffer_size,
            batch_size=batch_size,
            tls=tls,
            retry=retry,
        )
        self._receipts = ReceiptBook()
        self._random: Callable[[], float] = random.random
        self._clock: Callable[[], float] = time.monotonic
        self._sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
        self._is_closed = False
        self._channels = Channels(self._setup.targets, open_channel or open_grpc_channel)
        self.chat = AsyncChat(self)
        """The same in the shape of OpenAI's client: `client.chat.completions.create(...)`."""
        self.cache = AsyncCacheAdmin(self._unary)
        """Stored answers of the mesh, for its operators: `client.cache.flush(...)`, `stats`."""
        self.keys = AsyncKeyAdmin(self._unary)
        """API keys of the mesh, for its operators: `client.keys.create(...)`, `show`, `rotate`, `revoke`."""
        self.index = AsyncIndex(self._unary)
        """Documents for answers to draw on: `client.index.upsert(...)`, `search`, `delete`, `collections`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(target={self._setup.addresses!r}, api_key=<hidden>)"

    @property
    def streaming(self) -> bool:
        """As set up."""
        return self._setup.defaults.streaming

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; what still runs is cancelled. Idempotent."""
        self._is_closed = True
        for channel in self._channels.take_opened():
            await channel.close()

    @overload
    def generate(
        self, prompt: PromptLike, *, output_schema: type[M], **options: Unpack[GenerateOptions]
    ) -> AsyncStream[M]: ...
    @overload
    def generate(
        self,
        prompt: PromptLike,
        *,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream[Any]: ...
    def generate(
        self,
        prompt: PromptLike,
        *,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream[Any]:
        """Ask for an answer. The call starts at once; its errors are raised by the stream.

        `output_schema` is the client's unless given; None asks for plain text. See GenerateOptions for the rest.
        Raises TypeError and ValueError for what can't be a request.
        """
        plan = plan_request(self._setup.defaults, prompt, output_schema, options=options)
        plan.request.receipts.extend(self._receipts.take())
        return self._stream(
            connection.GENERATE,
            plan.request,
            answer_of(plan),
            timeout_s=plan.timeout_s,
            holds_back=not plan.streaming,
            carrier=plan.request,
        )

    def generate_many(
        self,
        items: "Iterable[Any] | AsyncIterable[Any]",
        *,
        batch_size: int | None = None,
        as_completed: bool = False,
        return_errors: bool = False,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> AsyncIterator[Any]:
        """See `SsopClient.generate_many`; `items` may be an async iterable."""

        async def run(item: Any) -> Any:
            async with self.generate(**item_arguments(item, output_schema, options)) as stream:
                return await stream.result()

        return run_batch_async(
            run,
            items,
            batch_size=check_batch_size(self._setup.batch_size if batch_size is None else batch_size),
            as_completed=as_completed,
            return_errors=return_errors,
        )

    def session(self, *, timeout_s: float = 3_600.0, max_requests: int = 64) -> AsyncSession:
        """Many requests on one stream, whose prompts may arrive in pieces.

        `timeout_s` is the life of the session in seconds; each request keeps its own deadline. `max_requests` are in
        flight at once, at most; `begin` waits beyond that.
        """
        self._check_open()
        number, channel = self._channels.get()
        call = channel.stream_stream(
            connection.SESSION, pb.SessionRequest.SerializeToString, pb.SessionResponse.FromString
        )
        return AsyncSession(
            lambda: call(timeout=check_timeout(timeout_s), metadata=self._setup.call_metadata()),
            self._setup,
            self._receipts,
            max_requests=max_requests,
            # Where several routers were named, the session after this one begins at another.
            on_lost=lambda: self._channels.leave(number),
        )

    def resume(
        self,
        request_id: str,
        after_seq: int | None = None,
        *,
        previous: AsyncStream[Any] | None = None,
        output_schema: "SchemaLike | Unset" = UNSET,
        timeout_s: float | None = None,
        allow_degraded: bool | None = None,
    ) -> AsyncStream[Any]:
        """Go on with an answer whose connection was lost, within its `resume_window_ms`.

        The stream shows the frames after `after_seq`, and its result is the whole answer. With `previous`, the stream
        that broke, only those frames travel (`after_seq` is then its last one); without it all of them travel again,
        since the values are read with the field table of the first ones.
        """
        request, answer = plan_resume(
            self._setup,
            request_id,
            after_seq=after_seq,
            previous=previous,
            output_schema=output_schema,
            allow_degraded=allow_degraded,
        )
        return self._stream(
            connection.RESUME,
            request,
            answer,
            timeout_s=check_timeout(timeout_s or self._setup.defaults.timeout_s),
            holds_back=False,
            carrier=None,
        )

    async def check_schema(
        self, output_schema: SchemaLike, *, stream_buffer_size: int = 0, timeout_s: float | None = None
    ) -> pb.CheckSchemaResponse:
        """What the mesh makes of a schema: field table, caps, buffer, mode per backend. Raises SchemaRefused."""
        request = check_schema_request(output_schema, stream_buffer_size)
        return await self._unary(connection.CHECK_SCHEMA, request, pb.CheckSchemaResponse, timeout_s)

    async def usage(self, days: int = 1, *, tenant: str = "") -> usage_pb2.GetUsageResponse:
        """What the key's tenant used, by day and tier; another `tenant` needs the scope `admin`. At most 62 days."""
        request = usage_pb2.GetUsageRequest(days=days, tenant=tenant)
        return await self._unary(connection.GET_USAGE, request, usage_pb2.GetUsageResponse, None)

    async def models(self, *, timeout_s: float | None = None) -> list[pb.ModelInfo]:
        """The models that the key may use, by name."""
        response = await self._unary(connection.LIST_MODELS, pb.ListModelsRequest(), pb.ListModelsResponse, timeout_s)
        return list(response.models)

    async def trace(self, request_id: str, *, timeout_s: float | None = None) -> pb.GetTraceResponse:
        """What happened to one of the tenant's last requests: stages, heads and times of its frames; no text.

        Raises RequestUnknown for one that the router has forgotten, or that another router served.
        """
        check_request_id(request_id)
        request = pb.GetTraceRequest(request_id=request_id)
        return await self._unary(connection.GET_TRACE, request, pb.GetTraceResponse, timeout_s)

    async def mesh_status(self, *, timeout_s: float | None = None) -> pb.GetMeshStatusResponse:
        """How the mesh is. Raises ScopeMissing without the scope `admin`."""
        return await self._unary(
            connection.GET_MESH_STATUS,
            pb.GetMeshStatusRequest(),
            pb.GetMeshStatusResponse,
            timeout_s,
        )

    async def explain(
        self,
        prompt: PromptLike,
        *,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> pb.ExplainDecisionResponse:
        """Where a request would go and why, without running it. Takes the arguments of `generate`."""
        plan = plan_request(self._setup.defaults, prompt, output_schema, options=options)
        return await self._unary(
            connection.EXPLAIN_DECISION,
            pb.ExplainDecisionRequest(request=plan.request),
            pb.ExplainDecisionResponse,
            plan.timeout_s,
        )

    def _stream(
        self,
        method: str,
        request: Any,
        answer: Answer,
        *,
        timeout_s: float,
        holds_back: bool,
        carrier: pb.GenerateRequest | None,
    ) -> AsyncStream[Any]:
        self._check_open()
        attempts = Attempts(self._channels)
        metadata = self._setup.call_metadata(answer.request_id)

        def open_call(remaining_s: float) -> Any:
            call: Any = attempts.next().unary_stream(method, type(request).SerializeToString)
            return call(request, timeout=remaining_s, metadata=metadata)

        return AsyncStream(
            open_call,
            answer,
            timeout_s=timeout_s,
            retry=self._setup.retry,
            receipts=self._receipts,
            random=self._random,
            carrier=carrier,
            holds_back=holds_back,
            clock=self._clock,
            sleep=self._sleep,
        )

    async def _unary(self, method: str, request: Message, kind: type[P], timeout_s: float | None) -> P:
        self._check_open()
        attempts = Attempts(self._channels)
        deadline = self._clock() + check_timeout(timeout_s or self._setup.defaults.timeout_s)
        attempt = 1
        while True:
            remaining_s = deadline - self._clock()
            call = attempts.next().unary_unary(method, type(request).SerializeToString, kind.FromString)
            try:
                response: P = await call(request, timeout=remaining_s, metadata=self._setup.metadata)
            except grpc.RpcError as failure:
                error = connection.error_of_rpc(failure)
                wait_s = wait_before_retry_s(
                    self._setup.retry,
                    error,
                    attempt=attempt,
                    remaining_s=deadline - self._clock(),
                    random=self._random,
                )
                if wait_s is None:
                    raise error from failure
                await self._sleep(wait_s)
                attempt += 1
            else:
                return response

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the client is closed")


def open_grpc_channel(target: Target) -> grpc.aio.Channel:
    """gRPC's own channel to a target."""
    credentials = channel_credentials(target)
    options = channel_options(target)
    if credentials is None:
        return grpc.aio.insecure_channel(target.address, options)
    return grpc.aio.secure_channel(target.address, credentials, options)
