"""The ASGI application: routes, the bound on requests, CORS."""

from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ssop_gateway.chat import chat_completions, list_models, not_served, show_model
from ssop_gateway.core.faults import EdgeError
from ssop_gateway.core.openapi import make_document
from ssop_gateway.embeddings import embeddings
from ssop_gateway.exchange import Edge, Endpoint, Exchange, Handle
from ssop_gateway.generate import generate, resume
from ssop_gateway.ops import Readiness, check_schema, explain, fixed_json, live, mesh_status, metrics_of
from ssop_gateway.pages import console_handles
from ssop_sdk.target import VERSION

_EXPOSED: Final = (
    "x-request-id", "x-ssop-status", "x-ssop-degraded-level", "retry-after", "retry-after-ms",
)  # fmt: skip
_ALLOWED: Final = ("authorization", "content-type", "last-event-id", "x-api-key", "x-request-id", "x-router-policy")
_UNKNOWN_ROUTE: Final = "_OTHER"


class Bound:
    """Refuses requests of an application beyond a number at the same time."""

    def __init__(self, app: ASGIApp, edge: Edge) -> None:
        self._app = app
        self._edge = edge
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI. Health and metrics are answered whatever runs."""
        is_counted = str(scope["path"]).startswith("/v1/")
        if is_counted and self._running >= self._edge.settings.max_in_flight:
            await Endpoint(self._edge, _UNKNOWN_ROUTE, _refuse)(scope, receive, send)
            return
        self._running += is_counted
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= is_counted


async def _refuse(_: Exchange) -> None:
    raise EdgeError("OVERLOADED", "the edge serves as many requests as it can", retry_after_ms=1_000)


class Dispatch:
    """One path: an endpoint for each of its methods, 405 for the others."""

    def __init__(self, edge: Edge, path: str, handles: Mapping[str, Handle]) -> None:
        self._endpoints = {method: Endpoint(edge, path, handle) for method, handle in handles.items()}
        allowed = ", ".join(sorted(handles))

        async def refuse(_: Exchange) -> None:
            raise EdgeError("METHOD_NOT_ALLOWED", f"{path} takes {allowed}", headers={"allow": allowed})

        self._refusal = Endpoint(edge, path, refuse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._endpoints.get(method, self._refusal)(scope, receive, send)


async def _unknown(_: Exchange) -> None:
    raise EdgeError("PATH_UNKNOWN", "there is nothing at this path; /openapi.json lists what there is")


def make_app(edge: Edge, registry: CollectorRegistry, readiness: Readiness) -> ASGIApp:
    """The application."""
    settings = edge.settings
    handles: dict[str, dict[str, Handle]] = {
        "/v1/generate": {"POST": generate},
        "/v1/generate/{request_id}": {"GET": resume},
        "/v1/chat/completions": {"POST": chat_completions},
        "/v1/embeddings": {"POST": embeddings},
        "/v1/models": {"GET": list_models},
        "/v1/models/{model:path}": {"GET": show_model},
        "/v1/responses": {"POST": not_served("the Responses API")},
        "/v1/completions": {"POST": not_served("the API of plain completions")},
        "/v1/explain": {"POST": explain},
        "/v1/schema/check": {"POST": check_schema},
        "/v1/mesh/status": {"GET": mesh_status},
        "/openapi.json": {"GET": fixed_json(make_document(VERSION))},
        "/healthz": {"GET": live},
        "/readyz": {"GET": readiness.answer},
    }
    if settings.has_console:
        handles |= console_handles()
    if settings.has_metrics:
        handles["/metrics"] = {"GET": metrics_of(registry)}
    routes = [Route(path, Dispatch(edge, path, methods)) for path, methods in handles.items()]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    app.router.default = Endpoint(edge, _UNKNOWN_ROUTE, _unknown)
    return _with_cors(Bound(app, edge), settings.cors_origins)


def _with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=_ALLOWED,
        expose_headers=_EXPOSED,
        max_age=600,
    )
