"""How tokens come together changes nothing of a document."""

from hypothesis import given
from hypothesis import strategies as st

from ssop.v1 import frame_pb2
from ssop_codec import DONE, INVALID, Encoder, compile_schema, text_schema
from ssop_inference.core.document import DocumentWriter, Ending
from ssop_inference.core.tokens import Token

SCHEMA = compile_schema(
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "maximum": 9},
            "b": {"type": "string"},
            "c": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
)
TEXTS = [
    '{"a": 1, "b": "xyz", "c": ["q", "w"]}',
    '```json\n{"a": 1}\n```\nmore {"a": 99} prose',
    'before {"a": 1} {"b"',
    '{"a": 99, "b": "x"}',
    '{"a": 1, "b": "x"',
    '{"a":1}}}',
    'hello {"z":1}',
    '{"b": "' + "é" * 1500 + '", "a": 2}',
]


@given(st.sampled_from(TEXTS), st.data(), st.booleans(), st.sampled_from([64, 1024]), st.booleans())
def test_a_batch_gives_what_its_tokens_give_one_by_one(
    text: str, data: st.DataObject, is_envelope: bool, buffer_bytes: int, is_text: bool
) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=8)))
    tokens = [raw[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    schema = text_schema() if is_text else SCHEMA
    is_envelope = is_envelope and not is_text

    encoder = Encoder(schema, envelope=is_envelope, stream_buffer_bytes=buffer_bytes)
    flags = 0
    for token in tokens:
        if flags & INVALID or (is_envelope and flags & DONE):
            break
        flags = encoder.feed(token)
    expected = encoder.drain(flush=True)
    encoder.finish(finish_reason=1)
    expected += encoder.drain(flush=True)

    writer = DocumentWriter(schema, stream_buffer_bytes=buffer_bytes, is_envelope=is_envelope, has_logprobs=False)
    chunks = writer.feed([Token(token) for token in tokens])
    assert chunks + writer.finish(Ending(frame_pb2.FINISH_REASON_STOP)) == expected
    assert (writer.verdict, writer.is_invalid, writer.is_done) == (
        int(encoder.verdict),
        bool(flags & INVALID),
        bool(flags & DONE),
    )
