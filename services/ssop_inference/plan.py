"""How a schema is served by a model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ssop.v1 import inference_pb2, mesh_pb2
from ssop_codec import FrameKind, Schema, mesh_chunk, text_schema
from ssop_inference.core.beginning import Beginning
from ssop_inference.core.buffer import BufferEstimate
from ssop_inference.core.confidence import ConfidenceWriter
from ssop_inference.core.constraint import TEXT, Constraint, Mode
from ssop_inference.core.document import DocumentWriter
from ssop_inference.core.tool_answer import ToolAnswerWriter


@dataclass(frozen=True)
class Plan:
    """A schema as the codec and the model's engine see it."""

    schema: Schema
    constraint: Constraint
    instruction: str = ""
    """What a model is told of the schema, without its control tokens."""
    buffer: BufferEstimate | None = None

    @cached_property
    def manner(self) -> "Manner":
        """How an answer is written that has nothing of its own."""
        return Manner(self, self.status)

    @cached_property
    def status(self) -> bytes:
        """What an answer without passages begins with."""
        return status_chunk(self.constraint, ())


class Manner(NamedTuple):
    """How one answer is written.

    `status` is a chunk that goes before everything else. `open_calls` makes the writer of an answer that may call
    tools, from what opens its main document and the number that tracers know the answer by.
    """

    plan: Plan
    status: bytes
    confidence: ConfidenceWriter | None = None
    beginning: Beginning | None = None
    open_calls: Callable[[Callable[[], DocumentWriter], int], ToolAnswerWriter] | None = None


TEXT_PLAN: Final = Plan(text_schema(), TEXT)


def status_chunk(constraint: Constraint, passages: Iterable[inference_pb2.Passage]) -> bytes:
    """The status frame of an answer: how the model is held, and the passages that it was shown."""
    status = mesh_pb2.DeliveryStatus(
        state=mesh_pb2.DELIVERY_STATE_OK,
        constraint_mode=mode_number(constraint.mode),
        engine_limits=constraint.engine_limits,
        passages=[passage.ref for passage in passages],
    )
    return mesh_chunk(FrameKind.STATUS, status.SerializeToString())


def mode_number(mode: Mode) -> mesh_pb2.ConstraintMode.ValueType:
    """As the protocol has it."""
    return mesh_pb2.ConstraintMode.ValueType(int(mode))
