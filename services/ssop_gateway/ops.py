"""What operators and balancers ask: liveness, readiness, metrics; and what the mesh says about itself."""

from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from ssop.v1 import router_pb2
from ssop_gateway.core.faults import EdgeError, invalid
from ssop_gateway.core.frames import dump, to_json
from ssop_gateway.core.generate_body import GenerateBody, plan_body
from ssop_gateway.core.reading import SSOP_TYPE, Caller, read_model
from ssop_gateway.exchange import Exchange, Handle, timeout_ms
from ssop_gateway.generate import read_object
from ssop_gateway.upstream import CHECK_SCHEMA, EXPLAIN, MESH_STATUS
from ssop_sdk.calls import check_schema_request

_HINT: Final = f"send the body as {SSOP_TYPE}"


async def live(exchange: Exchange) -> None:
    """GET /healthz: the process answers."""
    await exchange.answer_json(200, {"status": "ok"})


class Readiness:
    """GET /readyz: requests should come; false while the process drains or the router does not serve."""

    def __init__(self) -> None:
        self.is_draining = False

    async def answer(self, exchange: Exchange) -> None:
        """See the class."""
        if self.is_draining:
            await exchange.answer_json(503, {"status": "draining"})
        elif await exchange.edge.router.is_ready():
            await exchange.answer_json(200, {"status": "ready"})
        else:
            await exchange.answer_json(503, {"status": "the router does not serve"})


def metrics_of(registry: CollectorRegistry) -> Handle:
    """GET /metrics, in Prometheus' text format."""

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))

    return answer


def fixed_json(value: Any) -> Handle:
    """A document that never changes."""
    text = dump(value)

    async def answer(exchange: Exchange) -> None:
        await exchange.answer_json(200, text)

    return answer


async def mesh_status(exchange: Exchange) -> None:
    """GET /v1/mesh/status: nodes, dependencies, limits. Needs the scope `admin`."""
    request = router_pb2.GetMeshStatusRequest()
    await _answer_unary(exchange, exchange.caller(), MESH_STATUS, request, kind=router_pb2.GetMeshStatusResponse)


async def explain(exchange: Exchange) -> None:
    """POST /v1/explain: where a body of /v1/generate would go, and why. Costs no tokens."""
    caller = exchange.caller()
    body = read_model(GenerateBody, await read_object(exchange, _HINT))
    wanted_ms = timeout_ms(exchange, body.timeout_ms)
    plan = plan_body(body, request_id=exchange.request_id, timeout_ms=wanted_ms)
    request = router_pb2.ExplainDecisionRequest(request=plan.request)
    await _answer_unary(
        exchange, caller, EXPLAIN, request, kind=router_pb2.ExplainDecisionResponse, wanted_ms=wanted_ms
    )


async def check_schema(exchange: Exchange) -> None:
    """POST /v1/schema/check: what the mesh makes of a schema. Costs no tokens."""
    caller = exchange.caller()
    value = await read_object(exchange, _HINT)
    unknown = value.keys() - {"output_schema", "stream_buffer_size"}
    size = value.get("stream_buffer_size", 0)
    if unknown:
        raise invalid("body", "has members other than output_schema and stream_buffer_size")
    if "output_schema" not in value or value["output_schema"] is None:
        raise invalid("output_schema", "is missing")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= 16_384:
        raise invalid("stream_buffer_size", "is 0 (auto) or from 64 to 16384")
    try:
        request = check_schema_request(value["output_schema"], size)
    except (TypeError, ValueError, RecursionError):
        raise EdgeError("SCHEMA_REFUSED", "output_schema is no JSON Schema") from None
    await _answer_unary(exchange, caller, CHECK_SCHEMA, request, kind=router_pb2.CheckSchemaResponse)


async def _answer_unary(
    exchange: Exchange, caller: Caller, method: str, request: Any, *, kind: Any, wanted_ms: int | None = None
) -> None:
    timeout_s = (wanted_ms or timeout_ms(exchange, None)) / 1000
    call = exchange.edge.router.unary(method, request, kind, caller=caller, timeout_s=timeout_s)
    await exchange.answer_json(200, to_json(await exchange.until_gone(call)))
