"""One trace over all hops of the mesh, at a collector."""

from typing import Any

import grpc

from helpers.collector import Collector
from helpers.live_mesh import LiveMesh, wait_until
from ssop.v1.content_pb2 import ContentPart, Message, Prompt, Role, Sampling
from ssop.v1.router_pb2 import GenerateRequest
from ssop_sdk import SsopClient

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CANARY = "zanzibar-canary"


def test_a_request_leaves_one_trace_over_all_services_that_holds_no_prompt(
    mesh: LiveMesh, client: SsopClient, collector: Collector
) -> None:
    client.index.upsert("traced", {"pumps": "The pump in hall three is cooled by water."})
    message = Message(role=Role.ROLE_USER, parts=[ContentPart(text=f"Which pump is cooled by water? {CANARY}")])
    request = GenerateRequest(prompt=Prompt(messages=[message], sampling=Sampling(max_output_tokens=4)))
    metadata = (
        ("authorization", f"Bearer {mesh.key}"),
        ("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),
    )
    with grpc.insecure_channel(mesh.target) as channel:
        rpc: Any = channel.unary_stream("/ssop.v1.RouterService/Generate")
        list(rpc(request.SerializeToString(), timeout=60, metadata=metadata))

    def services() -> set[str]:
        return {service for service, _ in collector.of_trace(TRACE)}

    wait_until(lambda: services() >= {"ssop-router", "ssop-cache", "ssop-rag", "ssop-inference"}, 60, "all spans came")
    spans = {span.name: (service, span) for service, span in collector.of_trace(TRACE)}
    service, generate = spans["ssop.v1.RouterService/Generate"]
    assert service == "ssop-router"
    assert generate.parent_span_id.hex() == "00f067aa0ba902b7"
    assert {"ssop.decision", "ssop.retrieval"} <= {event.name for event in generate.events}
    (chat,) = [name for name in spans if name.startswith("chat ")]
    attributes = {entry.key for entry in spans[chat][1].attributes}
    assert {"gen_ai.operation.name", "gen_ai.request.model", "gen_ai.usage.output_tokens"} <= attributes
    assert CANARY not in str(collector.of_trace(TRACE))
