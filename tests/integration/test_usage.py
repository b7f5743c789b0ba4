"""What a tenant used, on a running mesh."""

import json
import subprocess
import sys

import pytest

from helpers.live_mesh import LiveMesh, wait_until
from ssop.v1.usage_pb2 import GetUsageResponse
from ssop_sdk import ScopeMissing, SsopClient

SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}


def requests(usage: GetUsageResponse) -> int:
    return sum(tier.requests for day in usage.days for tier in day.tiers)


def test_requests_are_counted_once_with_their_tokens_and_cost(mesh: LiveMesh, client: SsopClient) -> None:
    key = client.keys.create("counted", ["lite", "full", "ssop"])
    wait_until(lambda: _is_good(mesh, key.plain_key), 60, "the key is good")
    with SsopClient(api_key=key.plain_key, target=mesh.target, timeout_s=60) as other:
        for _ in range(2):
            other.generate("The update is great.", output_schema=SCHEMA).result()
        # Of two days, as one may end meanwhile.
        wait_until(lambda: requests(other.usage(2)) == 2, 60, "both requests are settled")
        days = other.usage(2).days
        assert sum(day.cached for day in days) == 1
        generated = [tier for day in days for tier in day.tiers if tier.tier]
        assert [tier.requests for tier in generated] == [1]
        assert generated[0].output_tokens > 0
        assert generated[0].cost > 0
        with pytest.raises(ScopeMissing):
            other.usage(tenant="local")
    assert requests(client.usage(2, tenant="counted")) == 2


def _is_good(mesh: LiveMesh, key: str) -> bool:
    try:
        with SsopClient(api_key=key, target=mesh.target, timeout_s=10) as client:
            client.models()
    except Exception as error:  # noqa: BLE001 - any failure is another look
        return not error
    return True


def test_command_shows_it(mesh: LiveMesh) -> None:
    command = [sys.executable, "-m", "ssop_cli.main", "usage", "--state-dir", str(mesh.places.state), "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert found["tenant"] == "local"
