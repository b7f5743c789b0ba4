"""Documents that stand ready for when nothing else is left."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.scripted_mesh import Mesh, ask, reason, run_router
from helpers.scripted_node import GOOD, SCHEMA, R, failing
from ssop.v1 import mesh_pb2
from ssop_chassis.settings import SettingsError
from ssop_codec import Decoder
from ssop_router.canned import CannedSettings, load_canned

SORRY = {**json.loads(GOOD), "score": 0}


@pytest.fixture
def canned(tmp_path: Path) -> list[dict[str, str]]:
    return [write(tmp_path, SORRY)]


def write(folder: Path, document: Any, tenant: str = "", schema: Any = SCHEMA) -> dict[str, str]:
    """An entry of the settings, and its files."""
    schema_file, document_file = folder / f"schema{tenant}.json", folder / f"document{tenant}.json"
    schema_file.write_text(json.dumps(schema))
    document_file.write_text(document if isinstance(document, str) else json.dumps(document))
    return {"schema_file": str(schema_file), "document_file": str(document_file), "tenant": tenant}


def break_all(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        node.script = failing()


async def test_canned_document_is_served_flagged_and_costs_nothing(canned: list[dict[str, str]]) -> None:
    async with run_router(canned=canned) as mesh:
        break_all(mesh)
        answer = await mesh.generate(ask())
        assert answer.error is None
        decoder = Decoder()
        for chunk in answer.chunks:
            decoder.feed(chunk)
        assert decoder.result == SORRY
        assert answer.status.degraded_level == 3
        assert answer.status.fallback_used
        assert answer.status.degraded_reason == mesh_pb2.DEGRADED_REASON_NODES_FAILED
        assert answer.trailers["x-ssop-degraded-level"] == "3"
        assert not answer.accounting.is_billed
        assert answer.accounting.usage.output_tokens == 0


async def test_canned_document_is_never_stored_as_an_answer(canned: list[dict[str, str]]) -> None:
    async with run_router(canned=canned) as mesh:
        break_all(mesh)
        for _ in range(2):
            assert (await mesh.generate(ask())).status.degraded_level == 3
        assert mesh.metric("ssop_router_degraded_total", level="3") == 2
        assert mesh.metric("ssop_router_cache_outcomes_total", reason="CACHE_REASON_HIT") == 0


async def test_caller_may_refuse_it(canned: list[dict[str, str]]) -> None:
    async with run_router(canned=canned) as mesh:
        break_all(mesh)
        answer = await mesh.generate(ask(max_degraded_level=2))
        assert reason(answer) == R.ERROR_REASON_DEGRADED_REFUSED
        assert answer.error is not None
        assert answer.error.metadata["level"] == "3"


async def test_other_schema_has_none(canned: list[dict[str, str]]) -> None:
    async with run_router(canned=canned) as mesh:
        break_all(mesh)
        assert reason(await mesh.generate(ask(schema={"type": "object"}))) == R.ERROR_REASON_NO_BACKEND
        assert reason(await mesh.generate(ask(schema=None))) == R.ERROR_REASON_NO_BACKEND


async def test_tenant_has_its_own(tmp_path: Path, canned: list[dict[str, str]]) -> None:
    own = write(tmp_path, {**SORRY, "score": 1}, tenant="acme")
    async with run_router(canned=[*canned, own]) as mesh:
        break_all(mesh)
        scores = {}
        for tenant in ("acme", "other"):
            answer = await mesh.generate(ask(), key=mesh.keys.of(tenant))
            decoder = Decoder()
            for chunk in answer.chunks:
                decoder.feed(chunk)
            scores[tenant] = decoder.result["score"]
        assert scores == {"acme": 1, "other": 0}


async def test_small_buffer_gets_it_in_small_chunks(canned: list[dict[str, str]]) -> None:
    async with run_router(canned=canned) as mesh:
        break_all(mesh)
        request = ask()
        request.prompt.stream_buffer_size = 64
        answer = await mesh.generate(request)
        assert answer.error is None
        assert answer.documents[-1].end.verdict == 1


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({**SORRY, "score": 99}, "maximum at '/score'"),
        ({"score": 1}, "required"),
        ('{"score": ', "ends too early"),
        ("", "ends too early"),
        ("nonsense", "does not fit"),
    ],
)
def test_document_that_does_not_fit_stops_the_start(tmp_path: Path, document: Any, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        load_canned([CannedSettings.model_validate(write(tmp_path, document))])


def test_schema_that_is_none_stops_the_start(tmp_path: Path) -> None:
    entry = write(tmp_path, SORRY, schema={"$ref": "https://elsewhere.example/s"})
    with pytest.raises(SettingsError, match="schema_file"):
        load_canned([CannedSettings.model_validate(entry)])


def test_file_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    entry = write(tmp_path, SORRY) | {"document_file": str(tmp_path / "none.json")}
    with pytest.raises(SettingsError, match="document_file"):
        load_canned([CannedSettings.model_validate(entry)])


async def test_cascade_that_is_left_with_it_was_nobodys(canned: list[dict[str, str]]) -> None:
    async with run_router(canned=canned) as mesh:
        for node in mesh.nodes.values():
            node.script = failing()
        answer = await mesh.generate(ask(policy="cascade"))
        assert answer.status.degraded_level == 3
        assert answer.decision.cascade_reason == mesh_pb2.CASCADE_REASON_UNSPECIFIED
        assert mesh.metric("ssop_router_cascades_total", outcome="none", reason="CASCADE_REASON_UNSPECIFIED") == 1
