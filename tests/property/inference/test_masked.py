"""Whatever the candidates are, the mask makes a token likelier and never impossible."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ssop_inference.core.masked import masked_logprob

pieces = st.binary(max_size=4)
logprobs = st.floats(-60, 0)
candidates = st.lists(st.tuples(pieces, logprobs), max_size=20).map(
    lambda found: sorted(found, key=lambda pair: -pair[1])
)


@given(text=st.binary(min_size=1, max_size=4), logprob=logprobs, found=candidates, allowed=st.sets(pieces))
def test_masked_probability_is_one(
    text: bytes, logprob: float, found: list[tuple[bytes, float]], allowed: set[bytes]
) -> None:
    masked = masked_logprob(text, logprob, found, allowed.__contains__)
    assert -100 < masked <= 0
    assert math.isfinite(masked)


@given(text=st.binary(min_size=1, max_size=4), logprob=logprobs, found=candidates, allowed=st.sets(pieces))
def test_fewer_allowed_pieces_never_make_a_token_less_likely(
    text: bytes, logprob: float, found: list[tuple[bytes, float]], allowed: set[bytes]
) -> None:
    contradicting = {piece for piece in allowed if not (piece.startswith(text) or text.startswith(piece))}
    narrow = masked_logprob(text, logprob, found, (allowed - contradicting).__contains__)
    wide = masked_logprob(text, logprob, found, allowed.__contains__)
    assert narrow >= wide - 1e-12
