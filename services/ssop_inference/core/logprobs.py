"""From log-probabilities of tokens to those of fields."""

from collections.abc import Sequence
from dataclasses import dataclass

from ssop.v1 import mesh_pb2


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A generated token: bytes `start` to `end` of the output (end exclusive), natural logarithm, at most 0."""

    start: int
    end: int
    logprob: float


@dataclass(frozen=True, slots=True)
class FieldSpan:
    """The bytes of the output that made one value frame."""

    seq: int
    start: int
    end: int


class FieldScorer:
    """Joins token spans and field spans. Memory is bounded by the tokens of the longest value."""

    def __init__(self) -> None:
        self._tokens: list[TokenSpan] = []

    def add_token(self, token: TokenSpan) -> None:
        """Take the next token; spans ascend."""
        if token.end > token.start:
            self._tokens.append(token)

    def score(self, fields: Sequence[FieldSpan]) -> mesh_pb2.FieldLogprobs:
        """The scores of fields that are complete, in ascending order. A token on a border counts for both sides."""
        message = mesh_pb2.FieldLogprobs()
        for span in fields:
            inside = [t.logprob for t in self._tokens if t.start < span.end and t.end > span.start]
            if inside:
                message.fields.add(seq=span.seq, sum_logprob=sum(inside), min_logprob=min(inside), tokens=len(inside))
        if fields:
            settled = fields[-1].end
            self._tokens = [token for token in self._tokens if token.end > settled]
        return message

    def pending(self, tokens: int) -> Sequence[float]:
        """The first `tokens` log-probabilities since the last scored field, or as many as there are."""
        return [token.logprob for token in self._tokens[:tokens]]
