"""The life of an opinion process: parts are opened, doors and worker run, a signal drains them.

Order of the drain: /readyz says 503 and webhooks are still taken for `lame_duck_ms`; the doors that pull stop; the
server lets requests finish; the worker lets posts finish for `drain_ms` and leaves the rest to others; parts close.
"""

import asyncio
import logging
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from ssop_chassis.http_server import bind_sockets, make_server
from ssop_chassis.notify import Manager
from ssop_chassis.reload import Reloader
from ssop_chassis.serving import settle_memory, wall_clock_ms
from ssop_chassis.settings import MeshSettings, SettingsError, show
from ssop_chassis.tls import is_exposed
from ssop_chassis.transport import Kind
from ssop_opinion.app import make_app
from ssop_opinion.dead_letters import DeadLetterOffice
from ssop_opinion.ending import end
from ssop_opinion.intake import Intake
from ssop_opinion.kafka_source import KafkaSource
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.newcomers import reload_when_told
from ssop_opinion.ports import AlertDesk, Analyst, Sink
from ssop_opinion.queue import PostQueue, QueueAwayError
from ssop_opinion.redis_source import RedisSource
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.tenants import Tenant, load_tenants
from ssop_opinion.webhook import Webhook, load_keys
from ssop_opinion.wiring import Parts, Setup
from ssop_opinion.worker import Worker
from ssop_opinion.x_stream import XStream

_PREPARE_RETRY_S = 0.5
_log = logging.getLogger(__name__)


class OpinionProcess:
    """Everything of one process. Made by `open_process`."""

    def __init__(self, setup: Setup, queue: PostQueue, *, analyst: Analyst | None, sink: Sink, desk: AlertDesk) -> None:
        self.setup = setup
        self.queue = queue
        self.sink = sink
        self.desk = desk
        self.metrics = OpinionMetrics(setup.registry)
        self.office = DeadLetterOffice(queue, self.metrics)
        settings = setup.settings
        self.intake = Intake(
            queue, self.office, self.metrics, now_ms=wall_clock_ms, max_wait_s=settings.max_wait_ms / 1000
        )
        self.worker: Worker | None = None
        if analyst is not None:
            self.worker = Worker(
                settings,
                queue=queue,
                analyst=analyst,
                sink=sink,
                desk=desk,
                metrics=self.metrics,
                now_ms=wall_clock_ms,
                rng=random.Random(),  # noqa: S311 - spreads pauses, guards nothing
            )
        self.is_draining = False

    def require_worker(self) -> Worker:
        """The worker of a process that has one."""
        if self.worker is None:
            raise RuntimeError("this process has no worker")
        return self.worker

    def webhook(self) -> Webhook:
        """The door for webhooks. Raises SettingsError."""
        webhook = Webhook(
            self.setup.settings, load_keys(self.setup.tenants), self.intake, self.metrics, now_ms=wall_clock_ms
        )
        self.setup.admits.append(webhook.admit)
        return webhook

    def sources(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """The doors that pull, each to be run. Raises SettingsError for tenants that nobody has."""
        settings = self.setup.settings
        named = {source.tenant for source in settings.x_streams}
        named |= {source.tenant for source in settings.redis_sources}
        named |= {source.tenant for source in settings.kafka_sources}
        unknown = named - set(self.setup.tenants)
        if unknown:
            raise SettingsError("sources of tenants without a file: " + ", ".join(sorted(unknown)))
        return [
            *(XStream(one, self.intake, self.metrics).run for one in settings.x_streams),
            *(RedisSource(one, self.intake, self.metrics).run for one in settings.redis_sources),
            *(KafkaSource(one, self.intake, self.metrics).run for one in settings.kafka_sources),
        ]

    async def why_not_ready(self) -> str:
        """Why posts should not come now; empty when they should."""
        if self.is_draining:
            return "draining"
        try:
            await self.queue.sizes()
        except QueueAwayError:
            return "the queue is away"
        return ""


@asynccontextmanager
async def open_process(
    settings: OpinionSettings, parts: Parts, registry: CollectorRegistry, transport: Kind = "grpc"
) -> AsyncIterator[OpinionProcess]:
    """Open all parts, and wait for the queue's Redis. Raises SettingsError, SinkAwayError and OSError."""
    setup = Setup(settings, load_tenants(settings.tenants_directory), registry, transport)
    async with AsyncExitStack() as stack:
        queue = PostQueue(settings, tuple(setup.tenants))

        async def admit(tenants: Mapping[str, Tenant]) -> Callable[[], None]:
            return lambda: queue.admit(tenants)

        setup.admits.append(admit)
        stack.push_async_callback(queue.close)
        await _prepare(queue)
        sink = await stack.enter_async_context(parts.open_sink(setup))
        desk = await stack.enter_async_context(parts.open_desk(setup, sink))
        has_worker = "worker" in settings.roles
        analyst = await stack.enter_async_context(parts.open_analyst(setup)) if has_worker else None
        yield OpinionProcess(setup, queue, analyst=analyst, sink=sink, desk=desk)


async def _prepare(queue: PostQueue) -> None:
    while True:
        try:
            await queue.prepare()
        except QueueAwayError:
            _log.warning("waiting for the queue's Redis")
            await asyncio.sleep(_PREPARE_RETRY_S)
        except ValueError as error:
            raise SettingsError(str(error)) from error
        else:
            return


async def serve(
    mesh: MeshSettings, settings: OpinionSettings, parts: Parts, reloader: Reloader[OpinionSettings]
) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reloads. Raises SettingsError, SinkAwayError and OSError."""
    stop, hung_up = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    reloading = partial(reload_when_told, hung_up, reloader)
    starting = asyncio.ensure_future(_run(mesh, settings, parts, stop, reloading))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await starting
    finally:
        stopping.cancel()


async def _run(
    mesh: MeshSettings,
    settings: OpinionSettings,
    parts: Parts,
    stop: asyncio.Event,
    reloading: Callable[[Setup], Coroutine[Any, Any, None]],
) -> None:
    manager = Manager()
    registry = CollectorRegistry()
    async with manager.watched(), open_process(settings, parts, registry, mesh.transport) as process:
        has_doors = "doors" in settings.roles
        app = make_app(
            webhook=process.webhook() if has_doors else None,
            is_ready=process.why_not_ready,
            registry=registry if settings.has_metrics else None,
            pages=parts.page_routes(process.setup, process.sink, process.desk),
        )
        server = make_server(app, settings, mesh.drain_ms)
        sockets, addresses = bind_sockets(settings.listen)
        if any(map(is_exposed, addresses)):
            _log.warning("posts and records travel unencrypted to an address that others reach; put TLS in front")
        quit_worker = asyncio.Event()
        beside = [asyncio.create_task(run()) for run in process.sources()] if has_doors else []
        beside.append(asyncio.create_task(reloading(process.setup)))
        serving = asyncio.create_task(server.serve(sockets))
        drain_s = mesh.drain_ms / 1000
        worker = process.worker
        working = [asyncio.create_task(worker.run(quit_worker, drain_s))] if worker is not None else []
        _log.info("serving", extra={"addresses": addresses, "settings": show(settings)})
        settle_memory()
        manager.ready(f"serving at {', '.join(addresses)}")
        stopping = asyncio.ensure_future(stop.wait())
        try:
            running: list[asyncio.Future[Any]] = [serving, *working, *beside, stopping]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            _log.info("draining")
            manager.stopping(f"draining, for {mesh.lame_duck_ms + mesh.drain_ms} ms at most")
            process.is_draining = True
            if stop.is_set():
                await asyncio.sleep(mesh.lame_duck_ms / 1000)
        finally:
            stopping.cancel()
            await end(beside)
            server.should_exit = True
            quit_worker.set()
            # What ended by itself ended by a fault, which is raised here.
            results = await asyncio.gather(serving, *working, *beside, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    _log.info("stopped")
