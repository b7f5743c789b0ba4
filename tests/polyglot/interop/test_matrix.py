"""gRPC's interop cases, the native transport against other implementations in both roles, and the page that says so."""

from typing import Any, Final

import pytest

from helpers.interop import (
    CASES,
    CLIENTS,
    COMPRESSED,
    PROGRAMS,
    RUN_TIMEOUT_S,
    SERVERS,
    run_clients,
    run_servers,
)
from helpers.interop_page import AS_CLIENT, AS_SERVER, column, published, title
from helpers.polyglot import BUILD_TIMEOUT_S

pytestmark = [
    pytest.mark.needs("native_transport"),
    pytest.mark.needs("protoc"),
    pytest.mark.needs("openssl"),
    pytest.mark.timeout(BUILD_TIMEOUT_S + 3 * RUN_TIMEOUT_S),
]
GOOD: Final = "ok"
ABSENT: Final = "-"
"""The library does not tell messages apart, or not to its user."""


def _each(names: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.needs(PROGRAMS[name].component)) for name in names]


@pytest.mark.parametrize("name", _each(CLIENTS))
def test_client_of_the_native_server_passes_every_case_as_the_page_says(name: str) -> None:
    outcomes = run_clients([name])
    assert [(key, case, error) for key, cases in outcomes.items() for case, error in cases.items() if error] == []
    assert published(AS_SERVER)[title(name)] == column(outcomes, name)


@pytest.mark.parametrize("name", _each(SERVERS))
def test_native_client_passes_every_case_as_the_page_says(name: str) -> None:
    outcomes = run_servers([name])
    assert [(key, case, error) for key, cases in outcomes.items() for case, error in cases.items() if error] == []
    assert published(AS_CLIENT)[title(name)] == column(outcomes, name)


def test_page_knows_no_other_program_and_no_other_word_than_ok() -> None:
    for heading, names in ((AS_SERVER, CLIENTS), (AS_CLIENT, SERVERS)):
        found = published(heading)
        assert set(found) == {title(name) for name in names}
        for name in names:
            program, cases = PROGRAMS[name], found[title(name)]
            run = program.client_packing if heading == AS_SERVER else program.server_packing
            assert set(CASES) <= set(cases)
            assert {case for case, word in cases.items() if word != GOOD} == set(COMPRESSED) - set(run)
            assert set(cases.values()) <= {GOOD, ABSENT}
