"""What is written as TOML is read as it was."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ssop_cli.embedded import dump_toml

scalars = st.one_of(
    st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3))
)
documents = st.dictionaries(
    st.sampled_from(["mesh", "router", "cache", "keys"]),
    st.one_of(
        st.dictionaries(st.text(), values, max_size=5),
        st.lists(st.dictionaries(st.text(), values, max_size=3), min_size=1, max_size=3),
    ),
)


@given(documents)
def test_a_document_survives(document: dict[str, Any]) -> None:
    assert tomllib.loads(dump_toml(document)) == document
