"""h2spec, the conformance suite of HTTP/2, against the native transport."""

import re
from pathlib import Path
from typing import Final

import pytest

from helpers.h2spec import ANSWERED, EXCEPTIONS, list_cases, run, serving

pytestmark = [pytest.mark.needs("native_transport"), pytest.mark.needs("h2spec"), pytest.mark.timeout(600)]
PAGE: Final = Path(__file__).parents[3] / "docs" / "interop.md"


def _is_answered(name: str) -> bool:
    return name.startswith("generic/") or name in ANSWERED


@pytest.mark.parametrize("is_holding", [False, True], ids=["answers", "requests that run"])
async def test_every_case_passes_that_is_no_exception(tmp_path: Path, is_holding: bool) -> None:
    cases = [name for name in list_cases() if name not in EXCEPTIONS and _is_answered(name) is not is_holding]
    async with serving(is_holding=is_holding) as port:
        found = await run(port, tmp_path, cases)
    assert [name for name, is_good in found if not is_good] == []
    assert len(found) == len(cases)


def test_page_explains_each_exception_and_counts_the_rest() -> None:
    text = PAGE.read_text()
    assert re.findall(r"^\| `(http2/\S+)` \|", text, re.MULTILINE) == list(EXCEPTIONS)
    assert f"{len(list_cases()) - len(EXCEPTIONS)} of its {len(list_cases())} cases" in text
