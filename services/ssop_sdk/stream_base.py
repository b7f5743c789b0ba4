"""What the sync stream, the async stream and a request on a session have in common."""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from ssop.v1 import mesh_pb2
from ssop.v1.router_pb2 import GenerateRequest
from ssop_codec import Frame
from ssop_sdk.answer import Answer, ToolCallResult
from ssop_sdk.documents import Source, read_sources
from ssop_sdk.errors import Cancelled, DeadlineExceeded, SsopError
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.retry import RetryPolicy, wait_before_retry_s


class StreamBase:
    """State of a stream, and what it shows of its answer. Times are in seconds on the given clock."""

    def __init__(
        self,
        answer: Answer,
        *,
        timeout_s: float,
        retry: RetryPolicy,
        receipts: ReceiptBook,
        carrier: GenerateRequest | None,
        holds_back: bool,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self._answer = answer
        self._retry = retry
        self._receipts = receipts
        self._carrier = carrier
        self._holds_back = holds_back
        self._clock = clock
        self._random = random
        self._deadline = clock() + timeout_s
        self._attempt = 1
        self._pending: collections.deque[Frame] = collections.deque()
        self._error: SsopError | None = None
        self._is_over = False
        self._is_cancelled = False

    def __repr__(self) -> str:
        state = "over" if self._is_over else "running"
        return f"{type(self).__name__}(request_id={self.request_id!r}, {state})"

    @property
    def request_id(self) -> str:
        """Name of the request, the same on every try."""
        return self._answer.request_id

    @property
    def decision(self) -> mesh_pb2.Decision | None:
        """Where the request went and why; None until it has arrived."""
        return self._answer.decision

    @property
    def status(self) -> mesh_pb2.DeliveryStatus | None:
        """How the answer is delivered: degradation, cache, constraint mode; None until it has arrived."""
        return self._answer.status

    @property
    def sources(self) -> Sequence[Source]:
        """The passages that were put before the model, numbered as it saw them; none until the status has arrived."""
        return read_sources(self._answer.status)

    @property
    def accounting(self) -> mesh_pb2.Accounting | None:
        """What the delivery cost and how long it took; None until the end."""
        return self._answer.accounting

    @property
    def usage(self) -> mesh_pb2.Usage | None:
        """Tokens that the generation consumed; None until the end."""
        return self._answer.usage

    @property
    def finish_reason(self) -> str:
        """Name of the `FinishReason`, such as `STOP`; empty until the end."""
        return self._answer.finish_reason

    @property
    def logprobs(self) -> Sequence[mesh_pb2.FieldLogprob]:
        """Log-probabilities so far, where they were asked for; each names the frame it is about by `seq`."""
        return self._answer.logprobs

    @property
    def fields(self) -> dict[str, Any]:
        """Top-level properties that are complete so far. Provisional until the stream has ended well."""
        return self._answer.fields

    @property
    def text(self) -> str:
        """Plain text as far as it has arrived; with a schema, empty."""
        return self._answer.text

    @property
    def document(self) -> Any:
        """The whole answer as plain JSON values, before a Pydantic model is made of it; None until the end."""
        return self._answer.document

    @property
    def tool_calls(self) -> Sequence[ToolCallResult]:
        """Tool calls that are complete so far."""
        return self._answer.tool_calls

    @property
    def is_degraded(self) -> bool:
        """The answer did not come from the tier that was chosen."""
        return self._answer.degraded_level > 0

    @property
    def last_seq(self) -> int:
        """Sequence number of the last document frame that arrived: where `resume` goes on."""
        return self._answer.last_seq

    @property
    def frames_received(self) -> int:
        """Document frames that arrived."""
        return self._answer.frames_received

    @property
    def frames_verified(self) -> int:
        """Of these, how many were in sequence and decoded."""
        return self._answer.frames_verified

    def reopen(self) -> Answer:
        """The answer as far as it has arrived, for a call that goes on with it. Used by `resume`."""
        self._answer.reopen()
        return self._answer

    def _has_frame(self) -> bool:
        return bool(self._pending) and (self._is_over or not self._holds_back)

    def _wait_s(self, error: SsopError) -> float | None:
        """Seconds to wait before the call is made again, or None when it must not be."""
        if self._answer.has_frames:
            return None
        return wait_before_retry_s(
            self._retry,
            error,
            attempt=self._attempt,
            remaining_s=self._deadline - self._clock(),
            random=self._random,
        )

    def _begin_attempt(self, earlier: SsopError) -> float:
        """Time left for the next try. Raises DeadlineExceeded or Cancelled."""
        if self._is_cancelled:
            raise self._cancelled() from earlier
        remaining_s = self._deadline - self._clock()
        if remaining_s <= 0:
            raise DeadlineExceeded("the deadline passed", request_id=self.request_id) from earlier
        self._attempt += 1
        if self._carrier is not None and earlier.from_mesh:
            # The mesh has read the receipts of the try that it refused.
            self._carrier.ClearField("receipts")
        return remaining_s

    def _cancelled(self) -> Cancelled:
        return Cancelled("this side cancelled", request_id=self.request_id)

    def _never_arrived(self, error: SsopError) -> bool:
        is_unreachable = error.code is grpc.StatusCode.UNAVAILABLE and not error.from_mesh
        return is_unreachable and not self._answer.has_frames

    def _end(self, error: SsopError | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._error = error
        if error is not None and self._holds_back:
            self._pending.clear()
        if self._carrier is not None and error is not None and self._never_arrived(error):
            self._receipts.add(*self._carrier.receipts)
        receipt = self._answer.receipt()
        if receipt is not None:
            self._receipts.add(receipt)
