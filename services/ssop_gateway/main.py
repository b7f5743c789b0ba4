"""The gateway process: `python -m ssop_gateway.main --config ssop.toml`."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn

import uvloop
from prometheus_client import CollectorRegistry

from ssop_chassis import logs
from ssop_chassis.export import start_export
from ssop_chassis.http_server import bind_sockets, make_server, take_sockets
from ssop_chassis.notify import Manager, take_listeners
from ssop_chassis.reload import Reloader
from ssop_chassis.serving import open_process_tls, settle_memory
from ssop_chassis.settings import EXIT_SETTINGS, MeshSettings, SettingsError, load_settings, show
from ssop_chassis.tls import is_exposed
from ssop_chassis.transport import connector
from ssop_gateway.app import make_app
from ssop_gateway.exchange import Edge
from ssop_gateway.metrics import GatewayMetrics
from ssop_gateway.ops import Readiness
from ssop_gateway.settings import GatewaySettings
from ssop_gateway.upstream import Router

_log = logging.getLogger(__name__)


def run() -> NoReturn:
    """Run until SIGTERM or SIGINT, then exit: 0 after a drain, 78 on bad settings, 1 on other faults."""
    parser = argparse.ArgumentParser(prog="ssop-gateway")
    parser.add_argument("--config", type=Path, default=os.environ.get("SSOP_CONFIG"), help="path of ssop.toml")
    config: Path | None = parser.parse_args().config

    def load() -> tuple[MeshSettings, GatewaySettings]:
        mesh = load_settings(MeshSettings, "mesh", path=config, environ=os.environ)
        return mesh, load_settings(GatewaySettings, "gateway", path=config, environ=os.environ)

    try:
        mesh, settings = load()
    except SettingsError as error:
        sys.stderr.write(f"ssop-gateway: {error}\n")
        sys.exit(EXIT_SETTINGS)
    logs.configure("gateway", mesh.log_level)
    # Its warnings name each malformed request, which anybody can send.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    try:
        uvloop.run(_serve(mesh, settings, Reloader(mesh, settings, load, ())))
    except (OSError, SettingsError) as error:
        _log.critical("the service can't run: %s", error)
        sys.exit(1)
    sys.exit(0)


async def _serve(mesh: MeshSettings, settings: GatewaySettings, reloader: Reloader[GatewaySettings]) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.reload)
    manager = Manager()
    async with manager.watched(), AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, start_export("gateway", mesh))
        await _serve_until_told(mesh, settings, manager)
    _log.info("stopped")


async def _serve_until_told(mesh: MeshSettings, settings: GatewaySettings, manager: Manager) -> None:
    registry = CollectorRegistry()
    tls = open_process_tls(mesh, "gateway", registry)
    peer = connector(mesh.transport, mesh.compression)(
        settings.router_address, max_message_bytes=mesh.max_message_bytes, tls=tls
    )
    router = Router(
        peer,
        ready_timeout_ms=settings.ready_timeout_ms,
        ready_cache_ms=settings.ready_cache_ms,
        clock=time.monotonic,
    )
    readiness = Readiness()
    app = make_app(Edge(settings, router, GatewayMetrics(registry)), registry, readiness)
    server = make_server(app, settings, mesh.drain_ms)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    sockets, addresses = take_sockets(take_listeners()) or bind_sockets(settings.listen)
    if any(map(is_exposed, addresses)):
        _log.warning("API keys travel unencrypted to an address that others reach; put TLS in front")
    serving = asyncio.ensure_future(server.serve(sockets))
    _log.info("serving", extra={"addresses": addresses, "settings": show(settings)})
    settle_memory()
    manager.ready(f"serving at {', '.join(addresses)}")
    try:
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        _log.info("draining")
        manager.stopping(f"draining, for {mesh.lame_duck_ms + mesh.drain_ms} ms at most")
        readiness.is_draining = True
        await asyncio.sleep(mesh.lame_duck_ms / 1000)
        server.should_exit = True
        await serving
    finally:
        await peer.close()


if __name__ == "__main__":
    run()
