"""The compiled judge of an answer and its twin say the same, whatever the bytes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop.v1.frame_pb2 import (
    FRAME_KIND_END,
    FRAME_KIND_VALUE,
    VERDICT_INVALID,
    VERDICT_OK,
    Chunk,
    End,
    FieldNode,
    Frame,
    FrameKind,
    Header,
    PathStep,
)
from ssop.v1.mesh_pb2 import Usage
from ssop_cache.core import _whole, _whole_py, whole

TEXTS = st.text(max_size=6)
UINT32 = st.integers(0, 2**32 - 1)
STEPS = st.lists(
    st.one_of(st.builds(PathStep, index=UINT32), st.builds(PathStep, key=TEXTS), st.builds(PathStep, ref_node=UINT32)),
    max_size=2,
)
HEADERS = st.builds(
    Header,
    wire_version=UINT32,
    codec_version=TEXTS,
    schema_hash=st.binary(max_size=32),
    node_count=UINT32,
    nodes=st.lists(st.builds(FieldNode, node=UINT32, key=TEXTS, ref_node=UINT32, required=st.booleans()), max_size=3),
    annotations=st.lists(TEXTS, max_size=2),
    is_text=st.booleans(),
    tool_call_id=TEXTS,
)
ENDS = st.builds(
    End,
    verdict=st.sampled_from([VERDICT_OK, VERDICT_OK, VERDICT_OK, VERDICT_INVALID]),
    finish_reason=st.integers(0, 5),
    frames=st.integers(0, 2**64 - 1),
    usage=st.builds(Usage, input_tokens=UINT32, output_tokens=UINT32),
)
CONTENTS = (
    TEXTS.map(lambda value: {"string_value": value})
    | st.floats().map(lambda value: {"double_value": value})
    | st.integers(-(2**63), 2**63 - 1).map(lambda value: {"int_value": value})
    | st.binary(max_size=5).map(lambda value: {"json_value": value})
    | st.sampled_from([{"bool_value": True}, {"null_value": 0}, {"object_size": 3}, {"array_size": 2}, {}])
    | HEADERS.map(lambda value: {"header": value})
)
FRAMES = st.builds(
    lambda kind, node, path, parts, document, content: Frame(
        kind=kind, node=node, path=path, parts=parts, document=document, **content
    ),
    st.sampled_from([1, 2, 3, 4]) | st.sampled_from(FrameKind.values()),
    UINT32,
    STEPS,
    UINT32,
    UINT32,
    CONTENTS,
)


def answer_of(frames: list[Frame], ends: list[End], first_seq: int) -> bytes:
    chunk = Chunk(frames=[*frames, *(Frame(kind=FRAME_KIND_END, end=end) for end in ends)])
    for seq, frame in enumerate(chunk.frames, start=first_seq):
        frame.seq = seq
    return chunk.SerializeToString()


ANSWERS = st.builds(
    answer_of, st.lists(FRAMES, max_size=4), st.lists(ENDS, max_size=2), st.sampled_from([1, 1, 1, 1, 0, 2])
)
PADDING = st.sampled_from([0, 0, 0, 0, 1, 4, 6])


def write_number(value: int, padding: int = 0) -> bytes:
    """A varint, with so many bytes more than it needs."""
    groups = [value >> shift & 0x7F for shift in range(0, max(1, value.bit_length()), 7)] + [0] * padding
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


@st.composite
def oddly_written(draw: st.DrawFn) -> bytes:
    """A value and an end, of which each tag, length and number may be written oddly."""

    def field(number: int, content: int | bytes) -> bytes:
        is_number = isinstance(content, int)
        tag = write_number(number << 3 | (0 if is_number else 2), draw(PADDING))
        if isinstance(content, int):
            return tag + write_number(content, draw(PADDING))
        return tag + write_number(len(content), draw(PADDING)) + content

    head = st.sampled_from([0, 0, 0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1])
    value = field(1, 1) + field(2, FRAME_KIND_VALUE) + field(3, draw(head)) + field(10, draw(head))
    verdict = field(1, VERDICT_OK) + field(3, draw(head)) + field(4, draw(head))
    end = field(1, 2) + field(2, FRAME_KIND_END) + field(3, draw(head)) + field(17, verdict)
    return field(1, value) + field(1, end)


OK = answer_of([Frame(kind=FRAME_KIND_VALUE, string_value="a")], [End(verdict=VERDICT_OK)], 1)


def test_what_is_compiled_is_what_runs() -> None:
    assert whole.is_whole is _whole.is_whole


def test_a_usual_answer_needs_no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_whole_py, "is_whole", None)
    said = Frame(kind=FRAME_KIND_VALUE, string_value="\u5ba2")
    assert _whole.is_whole(answer_of([said], [End(verdict=VERDICT_OK)], 1))


@given(ANSWERS)
def test_an_answer_is_judged_as_protobuf_reads_it(chunk: bytes) -> None:
    assert _whole.is_whole(chunk) == _whole_py.is_whole(chunk)


@given(chunk=ANSWERS, at=st.floats(0, 1, exclude_max=True), change=st.binary(max_size=3), cut=st.integers(0, 3))
@example(chunk=OK, at=0, change=b"", cut=1)
@example(chunk=OK, at=0.99, change=b"", cut=1)
@example(chunk=OK.replace(b"a", b"\xff"), at=0, change=b"", cut=0)
@example(chunk=OK.replace(b"a", b"\xe4"), at=0, change=b"", cut=0)
@example(chunk=OK.replace(b"\x08\x01", b"\x08\x81\x00"), at=0, change=b"", cut=0)
@example(chunk=OK.replace(b"\x08\x01", b"\x10\x01"), at=0, change=b"", cut=0)
def test_bytes_that_were_changed_are_judged_alike(chunk: bytes, at: float, change: bytes, cut: int) -> None:
    place = int(at * len(chunk))
    changed = chunk[:place] + change + chunk[place + cut :]
    assert _whole.is_whole(changed) == _whole_py.is_whole(changed)


@given(oddly_written())
def test_an_answer_that_protobuf_would_not_write_so_is_judged_alike(chunk: bytes) -> None:
    """Numbers with more bytes than they need, and larger ones than their fields hold."""
    assert _whole.is_whole(chunk) == _whole_py.is_whole(chunk)


@given(st.binary(max_size=60))
def test_any_bytes_are_judged_alike(chunk: bytes) -> None:
    assert _whole.is_whole(chunk) == _whole_py.is_whole(chunk)


@given(st.lists(FRAMES.filter(lambda frame: frame.kind in {1, 2, 3, 4}), max_size=4))
def test_an_answer_of_documents_alone_that_ends_well_is_whole(frames: list[Frame]) -> None:
    assert _whole.is_whole(answer_of(frames, [End(verdict=VERDICT_OK)], 1))
