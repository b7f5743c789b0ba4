"""The ASGI application: the webhook, the page, health and metrics."""

from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ssop_opinion.webhook import PATH, Webhook

IsReady = Callable[[], Awaitable[str]]
"""Why posts should not come now; empty when they should."""


def make_app(
    *, webhook: Webhook | None, is_ready: IsReady, registry: CollectorRegistry | None, pages: Sequence[BaseRoute]
) -> ASGIApp:
    """The application. `webhook` None: this process has no doors. `registry` None: no /metrics."""

    async def live(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        reason = await is_ready()
        return JSONResponse({"status": reason or "ready"}, 503 if reason else 200)

    routes: list[BaseRoute] = [Route("/healthz", live), Route("/readyz", ready)]
    if webhook is not None:
        routes.append(Route(PATH, webhook, methods=["POST"]))
    if registry is not None:

        async def metrics(_: Request) -> Response:
            return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

        routes.append(Route("/metrics", metrics))
    app = Starlette(routes=[*routes, *pages])
    app.router.redirect_slashes = False
    if webhook is None:
        return app

    async def direct(scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST"
        await (webhook if is_post else app)(scope, receive, send)

    return direct
