"""Answers in the shape of OpenAI's chat completions, whole and in chunks."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ssop.v1 import mesh_pb2
from ssop_codec import Frame, FrameKind
from ssop_gateway.core.frames import delivery_of, to_json
from ssop_gateway.core.json_writer import JsonWriter
from ssop_sdk.answer import Answer
from ssop_sdk.errors import OutputIncomplete
from ssop_sdk.json_text import dump_json

_FINISH_REASONS: Final[Mapping[str, str]] = {
    "LENGTH": "length",
    "TOOL_CALLS": "tool_calls",
    "CONTENT_FILTER": "content_filter",
}
_CUT_BY_LENGTH: Final = frozenset({"MAX_OUTPUT_TOKENS", "CONTEXT_FULL"})


class ChatReply:
    """One reply, as its frames arrive. `created_s` is seconds since the epoch."""

    def __init__(self, answer: Answer, *, created_s: int, has_schema: bool, has_logprobs: bool, model: str) -> None:
        self._answer = answer
        self._created_s = created_s
        self._has_schema = has_schema
        self._has_logprobs = has_logprobs
        self._asked_model = model
        self._writer = JsonWriter()
        self._text: list[str] = []
        self._calls: dict[int, JsonWriter] = {}
        self._call_deltas: list[dict[str, Any]] = []
        self._logprobs_sent = 0
        # Of the values whose log-probabilities have not come yet, by sequence number.
        self._values: dict[int, tuple[str, str]] = {}
        self._parts: list[str] = []
        self._cut = ""

    @property
    def answer(self) -> Answer:
        """The answer that the reply shows."""
        return self._answer

    def take(self, frames: Sequence[Frame]) -> str:
        """The text that frames of the main document add."""
        return "".join(itertools.chain.from_iterable(map(self._take, frames)))

    def _take(self, frame: Frame) -> tuple[str, ...]:
        if frame.document:
            self._take_call(frame)
            return ()
        if self._has_schema:
            text = self._writer.write(frame)
        else:
            text = str(frame.value) if frame.kind != FrameKind.CLOSE else ""
        if self._has_logprobs:
            self._note_value(frame)
        return (text,)

    def _take_call(self, frame: Frame) -> None:
        """A frame of a call's arguments: what it adds to them, the first one with the call's name before it."""
        index = frame.document - 1
        if frame.document not in self._calls:
            self._calls[frame.document] = JsonWriter()
            header = self._answer.header_of(frame.document)
            self._call_deltas.append(
                {
                    "index": index,
                    "id": header.tool_call_id,
                    "type": "function",
                    "function": {"name": header.tool_name, "arguments": ""},
                }
            )
        text = self._calls[frame.document].write(frame)
        if not self._call_deltas or self._call_deltas[-1]["index"] != index:
            self._call_deltas.append({"index": index, "function": {"arguments": ""}})
        # One entry for each call in a chunk: clients take the first ones that they get as they are.
        self._call_deltas[-1]["function"]["arguments"] += text

    def _note_value(self, frame: Frame) -> None:
        if frame.kind == FrameKind.PART:
            self._parts.append(str(frame.value))
        elif frame.kind == FrameKind.VALUE:
            whole = "".join((*self._parts, str(frame.value))) if self._parts or not self._has_schema else ""
            self._values[frame.seq] = (frame.path, whole or dump_json(frame.value))
            self._parts.clear()

    def finish(self, trailers: Mapping[str, str | bytes]) -> None:
        """Judge the whole. Raises what `Answer.finish` raises, except where a limit on length cut the answer.

        That is no error in this API but the finish reason `length`, which its clients look at.
        """
        try:
            self._answer.finish(trailers)
        except OutputIncomplete as error:
            if error.incomplete_reason not in _CUT_BY_LENGTH:
                raise
            self._cut = "length"

    @property
    def finish_reason(self) -> str:
        """Why the model stopped, in OpenAI's words."""
        if self._cut:
            return self._cut
        return _FINISH_REASONS.get(self._answer.finish_reason, "tool_calls" if self._answer.tool_calls else "stop")

    def whole(self, content: str) -> dict[str, Any]:
        """The completion."""
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": dump_json(call.arguments)},
            }
            for call in self._answer.tool_calls
        ]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if calls and not content else content,
            "refusal": None,
        }
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self.new_logprobs(),
            "finish_reason": self.finish_reason,
        }
        return {**self._head("chat.completion"), "choices": [choice], "usage": self.usage(), **self.mesh()}

    def chunk(
        self, delta: Mapping[str, Any], *, finish_reason: str | None = None, logprobs: Any = None
    ) -> dict[str, Any]:
        """A chunk with a delta."""
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def last_chunk(self) -> dict[str, Any]:
        """The chunk with the usage, which has no choice."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage()}

    def _head(self, kind: str) -> dict[str, Any]:
        decision = self._answer.decision
        return {
            "id": f"chatcmpl-{self._answer.request_id}",
            "object": kind,
            "created": self._created_s,
            "model": (decision.model if decision is not None else "") or self._asked_model,
            "system_fingerprint": None,
        }

    def usage(self) -> dict[str, Any]:
        """Tokens, counted with the tokenizer of the model that ran."""
        usage = self._answer.usage or mesh_pb2.Usage()
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        }

    def mesh(self) -> dict[str, Any]:
        """What the mesh says beside the answer: how it was delivered, and the decision."""
        delivery = delivery_of(self._answer.status)
        parts = {
            "decision": self._answer.decision,
            "delivery": self._answer.status,
            "accounting": self._answer.accounting,
        }
        told = {name: to_json(message) for name, message in parts.items() if message is not None}
        flags = delivery.flags()
        return {**(flags if delivery.is_degraded else {}), "ssop": {**flags, **told}}

    def new_call_deltas(self) -> list[dict[str, Any]]:
        """What calls have gained since the last time: their names, and their arguments as they are completed.

        They are final, and provisional until the end: whether the whole conforms is known there.
        """
        deltas, self._call_deltas = self._call_deltas, []
        return deltas

    def new_logprobs(self) -> dict[str, Any] | None:
        """Log-probabilities that came since the last time: one entry for each value, None where there are none.

        `logprob` is the sum over the value's tokens, `token` its text; `ssop` has what else is known.
        """
        fresh = self._answer.logprobs[self._logprobs_sent :]
        self._logprobs_sent = len(self._answer.logprobs)
        entries = []
        for field in fresh:
            path, text = self._values.pop(field.seq, ("", ""))
            entries.append(
                {
                    "token": text,
                    "logprob": field.sum_logprob,
                    "bytes": list(text.encode()),
                    "top_logprobs": [],
                    "ssop": {"path": path, "tokens": field.tokens, "min_logprob": field.min_logprob},
                }
            )
        return {"content": entries, "refusal": None} if entries else None
