"""The sync client."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import grpc
from google.protobuf.message import Message

from ssop.v1 import router_pb2 as pb
from ssop.v1 import usage_pb2
from ssop_sdk import connection
from ssop_sdk.answer import Answer
from ssop_sdk.batch import run_batch
from ssop_sdk.cache import CacheAdmin
from ssop_sdk.calls import answer_of, check_schema_request, item_arguments, plan_resume
from ssop_sdk.channels import Attempts, Channels
from ssop_sdk.chat import Chat
from ssop_sdk.configuration import check_batch_size, set_up
from ssop_sdk.errors import SsopError
from ssop_sdk.index import Index
from ssop_sdk.keys import KeyAdmin
from ssop_sdk.messages import PromptLike
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.request import UNSET, GenerateOptions, Unset, check_request_id, check_timeout, plan_request
from ssop_sdk.retry import RetryPolicy, wait_before_retry_s
from ssop_sdk.schema import SchemaLike
from ssop_sdk.stream import Stream
from ssop_sdk.target import Target, Tls, channel_credentials, channel_options

M = TypeVar("M")
P = TypeVar("P", bound=Message)


class SsopClient:
    """A client of the mesh: one channel, safe to share between threads.

    ```python
    with SsopClient(target="127.0.0.1:7300", output_schema={"type": "object"}) as client:
        for frame in client.generate("Summarise ..."):
            print(frame.path, frame.value)
    ```

    A process that forks must make its clients after the fork: gRPC's threads do not live on in the child, and a
    client that was made before hangs there.
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
    ) -> None:
        """Set up a client; it connects with its first call.

        api_key: the key; else SSOP_API_KEY.
        target: `host:port`, `unix:/path`, or `ssops://host[:port]` and `https://host[:port]` for TLS; else SSOP_TARGET,
            else 127.0.0.1:7300. `ssops://host?ca=FILE&cert=FILE&key=FILE&name=HOST` names the files of TLS. Several
            routers of one mesh with commas between them: a call that is repeated goes to the next one, and so do those
            after it.
        streaming: False holds frames back until the verdict on the whole is good, and makes `chat.completions.create`
            return a completion where `stream` is not given.
        output_schema: schema of answers unless a call names its own; see `SchemaLike`.
        timeout_s: deadline of a call in seconds unless it names its own; repetitions included.
        policy: as `x-router-policy`.
        max_degraded_level: deepest level of degradation, 0 to 3, that the mesh may answer with; None is the mesh's 3.
        allow_degraded: take degraded answers as they are instead of raising DegradedAnswer.
        stream_buffer_size: largest chunk in bytes, 0 (`auto`) or from 64 to 16384.
        batch_size: requests in flight of `generate_many`, from 1.
        tls: a `Tls`, True for TLS with defaults, False to forbid it, None to go by the target. What neither it nor the
            target names comes from SSOP_TLS_CA, SSOP_TLS_CERTIFICATE, SSOP_TLS_KEY and SSOP_TLS_NAME.
        retry: when calls are repeated; see RetryPolicy. Without one, twice for each router of the target.

        Raises ConfigurationError, and TypeError for what is no schema.
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
        self._sleep: Callable[[float], Any] | None = None
        self._closed = threading.Event()
        self._channels = Channels(self._setup.targets, _connect)
        # So that certificates that can't be read are told here.
        self._channels.get()
        self.chat = Chat(self)
        """The same in the shape of OpenAI's client: `client.chat.completions.create(...)`."""
        self.cache = CacheAdmin(self._unary)
        """Stored answers of the mesh, for its operators: `client.cache.flush(...)`, `stats`."""
        self.keys = KeyAdmin(self._unary)
        """API keys of the mesh, for its operators: `client.keys.create(...)`, `show`, `rotate`, `revoke`."""
        self.index = Index(self._unary)
        """Documents for answers to draw on: `client.index.upsert(...)`, `search`, `delete`, `collections`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(target={self._setup.addresses!r}, api_key=<hidden>)"

    @property
    def streaming(self) -> bool:
        """As set up."""
        return self._setup.defaults.streaming

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; what still runs is cancelled. Idempotent."""
        self._closed.set()
        for channel in self._channels.take_opened():
            channel.close()

    @overload
    def generate(
        self, prompt: PromptLike, *, output_schema: type[M], **options: Unpack[GenerateOptions]
    ) -> Stream[M]: ...
    @overload
    def generate(
        self,
        prompt: PromptLike,
        *,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> Stream[Any]: ...
    def generate(
        self,
        prompt: PromptLike,
        *,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> Stream[Any]:
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
        items: Iterable[Any],
        *,
        batch_size: int | None = None,
        as_completed: bool = False,
        return_errors: bool = False,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[Any]:
        """Answers to many prompts, `batch_size` of them in flight on the one channel.

        An item is a prompt, or a mapping of arguments of `generate` with the key `prompt`. `items` is read as
        results are taken, so it may be endless. Yields results in the order of the items; with `as_completed`, pairs
        of (index, result) as they come. An error is raised in the place of its result and stops the rest, or with
        `return_errors` takes that place.
        """

        def run(item: Any, register: Callable[[Stream[Any]], None]) -> Any:
            arguments = item_arguments(item, output_schema, options)
            with self.generate(**arguments) as stream:
                register(stream)
                return stream.result()

        return run_batch(
            run,
            items,
            batch_size=check_batch_size(self._setup.batch_size if batch_size is None else batch_size),
            as_completed=as_completed,
            return_errors=return_errors,
        )

    def resume(
        self,
        request_id: str,
        after_seq: int | None = None,
        *,
        previous: Stream[Any] | None = None,
        output_schema: "SchemaLike | Unset" = UNSET,
        timeout_s: float | None = None,
        allow_degraded: bool | None = None,
    ) -> Stream[Any]:
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

    def check_schema(
        self, output_schema: SchemaLike, *, stream_buffer_size: int = 0, timeout_s: float | None = None
    ) -> pb.CheckSchemaResponse:
        """What the mesh makes of a schema: field table, caps, buffer, mode per backend. Raises SchemaRefused."""
        request = check_schema_request(output_schema, stream_buffer_size)
        return self._unary(connection.CHECK_SCHEMA, request, pb.CheckSchemaResponse, timeout_s)

    def usage(self, days: int = 1, *, tenant: str = "") -> usage_pb2.GetUsageResponse:
        """What the key's tenant used, by day and tier; another `tenant` needs the scope `admin`. At most 62 days."""
        request = usage_pb2.GetUsageRequest(days=days, tenant=tenant)
        return self._unary(connection.GET_USAGE, request, usage_pb2.GetUsageResponse, None)

    def models(self, *, timeout_s: float | None = None) -> list[pb.ModelInfo]:
        """The models that the key may use, by name."""
        response = self._unary(connection.LIST_MODELS, pb.ListModelsRequest(), pb.ListModelsResponse, timeout_s)
        return list(response.models)

    def trace(self, request_id: str, *, timeout_s: float | None = None) -> pb.GetTraceResponse:
        """What happened to one of the tenant's last requests: stages, heads and times of its frames; no text.

        Raises RequestUnknown for one that the router has forgotten, or that another router served.
        """
        check_request_id(request_id)
        request = pb.GetTraceRequest(request_id=request_id)
        return self._unary(connection.GET_TRACE, request, pb.GetTraceResponse, timeout_s)

    def mesh_status(self, *, timeout_s: float | None = None) -> pb.GetMeshStatusResponse:
        """How the mesh is. Raises ScopeMissing without the scope `admin`."""
        return self._unary(
            connection.GET_MESH_STATUS,
            pb.GetMeshStatusRequest(),
            pb.GetMeshStatusResponse,
            timeout_s,
        )

    def explain(
        self,
        prompt: PromptLike,
        *,
        output_schema: "SchemaLike | Unset" = UNSET,
        **options: Unpack[GenerateOptions],
    ) -> pb.ExplainDecisionResponse:
        """Where a request would go and why, without running it. Takes the arguments of `generate`."""
        plan = plan_request(self._setup.defaults, prompt, output_schema, options=options)
        return self._unary(
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
    ) -> Stream[Any]:
        self._check_open()
        attempts = Attempts(self._channels)
        metadata = self._setup.call_metadata(answer.request_id)

        def open_call(remaining_s: float) -> Any:
            call: Any = attempts.next().unary_stream(method, type(request).SerializeToString)
            return call(request, timeout=remaining_s, metadata=metadata)

        return Stream(
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

    def _unary(self, method: str, request: Message, kind: type[P], timeout_s: float | None) -> P:
        self._check_open()
        attempts = Attempts(self._channels)
        deadline = self._clock() + check_timeout(timeout_s or self._setup.defaults.timeout_s)
        attempt = 1
        while True:
            remaining_s = deadline - self._clock()
            call = attempts.next().unary_unary(method, type(request).SerializeToString, kind.FromString)
            try:
                response: P = call(request, timeout=remaining_s, metadata=self._setup.metadata)
            except grpc.RpcError as failure:
                error: SsopError = connection.error_of_rpc(failure)
                wait_s = wait_before_retry_s(
                    self._setup.retry,
                    error,
                    attempt=attempt,
                    remaining_s=deadline - self._clock(),
                    random=self._random,
                )
                if wait_s is None:
                    raise error from failure
                (self._sleep or self._closed.wait)(wait_s)
                attempt += 1
            else:
                return response

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise RuntimeError("the client is closed")


def _connect(target: Target) -> grpc.Channel:
    credentials = channel_credentials(target)
    options = channel_options(target)
    if credentials is None:
        return grpc.insecure_channel(target.address, options)
    return grpc.secure_channel(target.address, credentials, options)
