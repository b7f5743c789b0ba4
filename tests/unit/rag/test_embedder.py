"""Where the default embedder can run, and the settings that choose it."""

import pytest
from pydantic import ValidationError

from ssop_rag.embedder import find_cpu_fault
from ssop_rag.settings import RagSettings


def test_another_architecture_is_named() -> None:
    assert find_cpu_fault("aarch64", frozenset()) == "it needs an x86-64 CPU, this is aarch64"


def test_missing_instructions_are_named() -> None:
    assert find_cpu_fault("x86_64", frozenset({"sse4_2"})) == "the CPU lacks avx2 and fma"


def test_a_fit_cpu_has_no_fault() -> None:
    assert find_cpu_fault("x86_64", frozenset({"avx2", "fma"})) is None


def test_an_unknown_embedder_stops_the_start() -> None:
    with pytest.raises(ValidationError, match="embedder"):
        RagSettings.model_validate({"directory": "x", "embedder": "other"})
