"""Random heads and bodies against the edge: a seeded sample. The nightly run sends ten thousand (tests/drill)."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import json

import httpx

from helpers.eventually import eventually
from helpers.gateway import Gateway, gateway, http, router_address, scripted
from helpers.http_garbage import answer_all, run_campaign
from helpers.scripted_router import ScriptedRouter


async def test_random_requests_are_never_a_fault_and_leave_nothing_behind(
    gateway: Gateway, scripted: ScriptedRouter
) -> None:
    answer_all(scripted)
    outcome = await run_campaign(gateway.port, 600, seed=6)
    assert not outcome.bad, outcome.bad[0]
    # Most requests must get past the parsers, or the sample says nothing.
    assert outcome.statuses[200] > 100
    assert outcome.statuses[400] > 100
    await eventually(lambda: scripted.in_flight == 0)
    await eventually(lambda: gateway.metric("http_server_active_requests") == 0)


async def test_the_document_describes_every_path(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    assert {"/v1/generate", "/v1/chat/completions", "/v1/models"} <= set(document["paths"])
    for path, operations in document["paths"].items():
        for method in operations:
            response = await http.request(
                method, path.replace("{model}", "x").replace("{request_id}", "r"), content=b"{}"
            )
            assert response.status_code not in {404, 405} or "{" in path
    assert '"$ref": "#/$defs' not in json.dumps(document)
