"""How the process makes its parts: the functions that `main` calls, by module and name.

ssop_opinion.analyst.open_analyst    OpenAnalyst
ssop_opinion.desk_opening.open_desk  OpenDesk
ssop_opinion.pages.page_routes       PageRoutes
ssop_opinion.sinks.open_sink         OpenSink
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from ssop_chassis.transport import Kind
from ssop_opinion.ports import AlertDesk, Analyst, Sink
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.tenants import Tenant, Tenants

Admit = Callable[[Mapping[str, Tenant]], Awaitable[Callable[[], None]]]
"""Makes all that new tenants need; what it returns lets them in, and can't fail. Raises SettingsError."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What each part is made from. `tenants` grows while the process runs; nobody ever leaves it."""

    settings: OpinionSettings
    tenants: Tenants
    registry: CollectorRegistry
    transport: Kind = "grpc"
    """What carries calls of the router: `MeshSettings.transport`."""
    admits: list[Admit] = field(default_factory=list)
    """Where parts that keep something of each tenant put how new ones come in."""


OpenAnalyst = Callable[[Setup], AbstractAsyncContextManager[Analyst]]
OpenSink = Callable[[Setup], AbstractAsyncContextManager[Sink]]
OpenDesk = Callable[[Setup, Sink], AbstractAsyncContextManager[AlertDesk]]
PageRoutes = Callable[[Setup, Sink, AlertDesk], Sequence[BaseRoute]]
"""Routes of the page, mounted beside the doors; they live below `/opinion` and `/v1/opinion/...`, but /posts."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a process; `main` has the real ones."""

    open_analyst: OpenAnalyst
    open_sink: OpenSink
    open_desk: OpenDesk
    page_routes: PageRoutes
