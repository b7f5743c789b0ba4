"""Confidence frames: how sure the model is of values, said before the frames of these values."""

from collections.abc import Sequence
from typing import Final

from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import Chunk, FrameKind
from ssop_codec import FieldType, Schema
from ssop_codec.rules import Rule
from ssop_inference.core.logprobs import FieldScorer

_SCALARS: Final = FieldType.INTEGER | FieldType.NUMBER | FieldType.BOOLEAN | FieldType.NULL
# A code or a label; longer strings are free text, whose words have many alternatives of the same meaning.
_MAX_CHOICE_CHARS: Final = 8


def find_choices(schema: Schema) -> frozenset[int]:
    """The nodes of the field table whose value is chosen from few: enums, booleans, numbers, short strings."""
    if schema.is_text or schema.is_raw:
        return frozenset()
    return frozenset(number for number, rule in enumerate(schema.rules) if _is_choice(rule))


def _is_choice(rule: Rule) -> bool:
    if rule.types & ~(_SCALARS | FieldType.STRING):
        return False
    if rule.enum_keyword:
        return _count_members(rule) > 1
    if rule.types & FieldType.STRING:
        return 0 <= rule.max_length <= _MAX_CHOICE_CHARS
    return bool(rule.types & ~FieldType.NULL)


def _count_members(rule: Rule) -> int:
    count = int(bool(rule.types & FieldType.NULL))
    if rule.types & FieldType.BOOLEAN:
        count += len(rule.bools)
    if rule.types & FieldType.STRING:
        count += len(rule.enum_strings or ())
    if rule.types & (FieldType.INTEGER | FieldType.NUMBER):
        count += len(rule.enum_numbers or ())
    return count


class ConfidenceWriter:
    """Makes the Confidence message of each batch. `tokens`: when a value that is still being written is judged."""

    def __init__(self, choices: frozenset[int], tokens: int) -> None:
        self._choices = choices
        self._tokens = tokens
        self._has_begun = False

    def write(
        self,
        chunks: Sequence[bytes],
        scored: mesh_pb2.FieldLogprobs,
        scorer: FieldScorer,
        usage: mesh_pb2.Usage,
    ) -> mesh_pb2.Confidence | None:
        """What is to be said before these chunks; None where they have no value and none is long enough."""
        scores = {entry.seq: entry for entry in scored.fields}
        message = mesh_pb2.Confidence(usage=usage, has_choices=bool(self._choices))
        for chunk in chunks:
            for frame in Chunk.FromString(chunk).frames:
                if frame.kind != FrameKind.FRAME_KIND_VALUE:
                    continue
                # Plain text is not scored as a field: its beginning stands for it.
                score = scores.get(frame.seq) or _score(scorer.pending(self._tokens))
                message.fields.add(
                    seq=frame.seq,
                    node=frame.node,
                    tokens=score.tokens,
                    sum_logprob=score.sum_logprob,
                    min_logprob=score.min_logprob,
                    is_choice=frame.node in self._choices,
                    is_null=frame.HasField("null_value"),
                )
        if message.fields:
            self._has_begun = False
        elif not self._has_begun and len(pending := scorer.pending(self._tokens)) == self._tokens:
            self._has_begun = True
            begun = _score(pending)
            message.fields.add(tokens=begun.tokens, sum_logprob=begun.sum_logprob, min_logprob=begun.min_logprob)
        return message if message.fields else None


def _score(logprobs: Sequence[float]) -> mesh_pb2.FieldLogprob:
    return mesh_pb2.FieldLogprob(
        sum_logprob=sum(logprobs), min_logprob=min(logprobs, default=0.0), tokens=len(logprobs)
    )
