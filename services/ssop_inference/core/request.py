"""Checks of a Generate request that need no model."""

from typing import Final, NamedTuple

from ssop.v1 import content_pb2, inference_pb2
from ssop_chassis.errors import invalid_request
from ssop_inference.core.prompt import ChatMessage

MIN_BUFFER_BYTES = 64
MAX_BUFFER_BYTES = 16_384
MAX_LINGER_MS = 1_000
MAX_STOPS = 4
MAX_CONFIDENCE_TOKENS = 256
MAX_STOP_BYTES = 64


class SamplingOptions(NamedTuple):
    """How tokens are drawn; see `ssop.v1.Sampling` for ranges. `max_output_tokens` 0 is the model's default."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    max_output_tokens: int = 0
    stop: tuple[str, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


DEFAULT_SAMPLING: Final = SamplingOptions()


class Asked(NamedTuple):
    """A Generate request, read.

    `turns` are those of its prompt, where they are text and all that the model is shown. Where there is more to it,
    such as tools, passages, pictures or a beginning, `turns` is empty and `rest` the message.
    """

    request_id: str
    model: str
    priority: int
    confidence_tokens: int
    schema_text: str | None
    asserts_format: bool
    stream_buffer_bytes: int
    linger_ms: int | None
    logprobs: bool
    sampling: SamplingOptions
    turns: tuple[ChatMessage, ...]
    rest: inference_pb2.InferenceServiceGenerateRequest | None


def check_request(asked: Asked) -> None:
    """Raise REQUEST_INVALID for what no node can serve."""
    if not asked.request_id:
        raise invalid_request(("request_id", "is required"))
    if asked.confidence_tokens > MAX_CONFIDENCE_TOKENS:
        raise invalid_request(("confidence_tokens", f"must be at most {MAX_CONFIDENCE_TOKENS}"))
    check_buffer(asked.stream_buffer_bytes)
    if asked.linger_ms is not None and asked.linger_ms > MAX_LINGER_MS:
        raise invalid_request(("prompt.linger_ms", f"must be at most {MAX_LINGER_MS}"))
    if asked.sampling is not DEFAULT_SAMPLING:
        check_sampling(asked.sampling, has_schema=asked.schema_text is not None)


def check_buffer(stream_buffer_bytes: int) -> None:
    """Raise REQUEST_INVALID unless the size is 0 (auto) or from 64 to 16384."""
    if stream_buffer_bytes and not MIN_BUFFER_BYTES <= stream_buffer_bytes <= MAX_BUFFER_BYTES:
        raise invalid_request(
            ("prompt.stream_buffer_size", f"must be 0 or from {MIN_BUFFER_BYTES} to {MAX_BUFFER_BYTES}")
        )


def read_sampling(prompt: content_pb2.Prompt) -> SamplingOptions:
    """The sampling options of a prompt, whatever they are."""
    if not prompt.HasField("sampling"):
        return DEFAULT_SAMPLING
    sampling = prompt.sampling
    return SamplingOptions(
        temperature=sampling.temperature,
        top_p=sampling.top_p if sampling.HasField("top_p") else 1.0,
        top_k=sampling.top_k,
        seed=sampling.seed if sampling.HasField("seed") else None,
        max_output_tokens=sampling.max_output_tokens,
        stop=tuple(sampling.stop),
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
    )


def check_sampling(sampling: SamplingOptions, *, has_schema: bool) -> None:
    """Raise REQUEST_INVALID, naming every field out of range."""
    faults = [
        (f"prompt.sampling.{name}", text)
        for name, text, is_wrong in (
            ("temperature", "must be from 0 to 2", not 0 <= sampling.temperature <= 2),
            ("top_p", "must be above 0 and at most 1", not 0 < sampling.top_p <= 1),
            ("presence_penalty", "must be from -2 to 2", not -2 <= sampling.presence_penalty <= 2),
            ("frequency_penalty", "must be from -2 to 2", not -2 <= sampling.frequency_penalty <= 2),
            ("stop", "is for plain text only", bool(sampling.stop) and has_schema),
            ("stop", f"takes at most {MAX_STOPS}", len(sampling.stop) > MAX_STOPS),
            (
                "stop",
                f"takes 1 to {MAX_STOP_BYTES} bytes each",
                any(not 1 <= len(stop.encode()) <= MAX_STOP_BYTES for stop in sampling.stop),
            ),
        )
        if is_wrong
    ]
    if faults:
        raise invalid_request(*faults)
