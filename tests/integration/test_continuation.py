"""A real model killed in the middle of an answer, and another one that goes on."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs

from helpers.inference import OPINION, POST
from helpers.ledger import check_final
from helpers.mortal_nodes import mortal_nodes
from helpers.router_fleet import run_fleet
from helpers.scripted_mesh import SECRET
from ssop_codec import FrameKind
from ssop_sdk import AsyncSsopClient


async def test_answer_of_a_killed_model_is_finished_by_another(tmp_path: Path) -> None:
    async with mortal_nodes(tmp_path, SECRET, "node-1", "node-2") as mortals:
        addresses = [node.address for node in mortals.nodes.values()]
        async with run_fleet(tmp_path, {}, routers=1, addresses=addresses) as fleet:
            router = fleet.routers[0]
            async with AsyncSsopClient(router.key, router.address, policy="full", timeout_s=60) as client:
                for number in range(5):
                    stream = client.generate(f"{POST} ({number})", output_schema=OPINION)
                    sent: list[tuple[tuple[str | int, ...], Any]] = []
                    killed = ""
                    async for frame in stream:
                        if frame.kind == FrameKind.VALUE:
                            if not sent:
                                assert stream.decision is not None
                                killed = stream.decision.node
                                mortals.kill(killed)
                            sent.append((frame.tokens, frame.value))
                    answer = await stream.result()
                    assert stream.status is not None
                    continuations = len(stream.status.continuations)
                    if continuations:
                        break
                    # The answer was whole before this process, which got no core, could kill anybody.
                    mortals.start(killed)
                    await mortals.serves(killed)
    assert continuations == 1
    assert not stream.is_degraded
    assert jsonschema_rs.is_valid(OPINION, answer), json.dumps(answer)
    check_final(sent, answer)
