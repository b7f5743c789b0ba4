"""The life of a service process: settings, logs, serve, become ready, drain. The service manager hears of each step.

Drain order: health says NOT_SERVING; calls are still taken for `lame_duck_ms`, so that balancers notice; then those
that run may finish for `drain_ms`; then the resources of the exit stack close, last opened first.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, NoReturn, TypeVar

import uvloop
from prometheus_client import CollectorRegistry, start_http_server

from ssop_chassis import logs
from ssop_chassis.call import Service
from ssop_chassis.dispatch import Authenticate, inner_authenticate
from ssop_chassis.enums import quicken_enums
from ssop_chassis.export import start_export
from ssop_chassis.health import Health
from ssop_chassis.identity import Secrets, Signer, load_secret
from ssop_chassis.metrics import CallMetrics, TlsMetrics
from ssop_chassis.notify import Manager
from ssop_chassis.reload import Reloader
from ssop_chassis.settings import EXIT_SETTINGS, MeshSettings, Settings, SettingsError, load_settings, show
from ssop_chassis.tls import NO_TLS, Tls, is_exposed, open_tls
from ssop_chassis.transport import is_native_built, resolve, server_starter

S = TypeVar("S", bound=Settings)
_GC_THRESHOLDS: Final = (20_000, 20, 20)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Process(Generic[S]):
    """What a service is given. `signer` signs principals for its own inner calls.

    `reloads` takes functions that make new settings hold on SIGHUP; each returns the names of those that it can change.
    """

    name: str
    settings: S
    mesh: MeshSettings
    secrets: Secrets
    registry: CollectorRegistry
    signer: Signer
    tls: Tls = NO_TLS
    reloads: list[Callable[[S], Collection[str]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Serving:
    """What a service serves.

    `started` hears the addresses that are listened on. `warm` runs after the start; health says SERVING when it
    returns. `drain` is called when the drain begins, to end streams that would not end by themselves.
    """

    services: Sequence[Service]
    listen: Sequence[str]
    authenticate: Authenticate | None = None
    started: Callable[[Sequence[str]], None] | None = None
    warm: Callable[[], Awaitable[None]] | None = None
    drain: Callable[[], None] | None = None


Load = Callable[[], tuple[MeshSettings, S]]
Build = Callable[[Process[S], AsyncExitStack], Awaitable[Serving]]


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def run_service(name: str, kind: type[S], build: Build[S]) -> NoReturn:
    """Run a service until SIGTERM or SIGINT, then exit: 0 after a drain, 78 on bad settings, 1 on other faults."""
    parser = argparse.ArgumentParser(prog=f"ssop-{name}")
    parser.add_argument("--config", type=Path, default=os.environ.get("SSOP_CONFIG"), help="path of ssop.toml")
    config: Path | None = parser.parse_args().config
    try:
        mesh, settings = _load(name, kind, config)
        secrets = Secrets(
            load_secret(mesh.secret_file),
            load_secret(mesh.old_secret_file) if mesh.old_secret_file is not None else b"",
            load_secret(mesh.next_secret_file) if mesh.next_secret_file is not None else b"",
        )
    except (SettingsError, OSError, ValueError) as error:
        sys.stderr.write(f"ssop-{name}: {error}\n")
        sys.exit(EXIT_SETTINGS)
    logs.configure(name, mesh.log_level)
    try:
        registry = CollectorRegistry()
        tls = open_process_tls(mesh, name, registry)
        signer = Signer(secrets.own, name, wall_clock_ms)
        process = Process(name, settings, mesh, secrets, registry, signer, tls)
    except SettingsError as error:
        sys.stderr.write(f"ssop-{name}: {error}\n")
        sys.exit(EXIT_SETTINGS)
    try:
        uvloop.run(_serve(process, build, lambda: _load(name, kind, config)))
    except (OSError, SettingsError) as error:
        _log.critical("the service can't run: %s", error)
        sys.exit(1)
    sys.exit(0)


def open_process_tls(mesh: MeshSettings, name: str, registry: CollectorRegistry) -> Tls:
    """TLS of a process, with its metrics where it is on. Raises SettingsError."""
    if not mesh.tls.is_on:
        return NO_TLS
    metrics = TlsMetrics(registry)
    tls = open_tls(mesh.tls, name, on_reload=metrics.count)
    if tls.certificates is not None:
        metrics.show_expiry(tls.certificates.expires_at_s)
    return tls


def warn_of_plain_text(addresses: Sequence[str], tls: Tls) -> None:
    """Say at the start which listeners others can read from."""
    exposed = [address for address in addresses if is_exposed(address) and not tls.is_listener_secure(address)]
    if exposed:
        _log.warning(
            "prompts and keys travel unencrypted to an address that others reach; set [mesh.tls]",
            extra={"addresses": exposed},
        )


def _load(name: str, kind: type[S], config: Path | None) -> tuple[MeshSettings, S]:
    mesh = load_settings(MeshSettings, "mesh", path=config, environ=os.environ)
    return mesh, load_settings(kind, name, path=config, environ=os.environ)


async def _serve(process: Process[S], build: Build[S], load: Load[S]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    mesh = process.mesh
    manager = Manager()
    async with manager.watched(), AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, start_export(process.name, mesh))
        serving = await build(process, stack)
        loop.add_signal_handler(signal.SIGHUP, Reloader(mesh, process.settings, load, process.reloads).reload)
        health = Health(service.name for service in serving.services)
        server = await server_starter(mesh.transport, process.name)(
            [*serving.services, health.service()],
            serving.listen,
            authenticate=serving.authenticate or inner_authenticate(*process.secrets.accepted),
            observer=CallMetrics(process.registry),
            default_deadline_ms=mesh.default_deadline_ms,
            max_session_ms=mesh.max_session_ms,
            max_message_bytes=mesh.max_message_bytes,
            max_concurrent_calls=mesh.max_concurrent_calls,
            has_reflection=mesh.has_reflection,
            tls=process.tls,
            max_connection_age_ms=mesh.max_connection_age_ms,
            max_connection_age_grace_ms=mesh.max_connection_age_grace_ms,
            max_connection_idle_ms=mesh.max_connection_idle_ms,
            compression=mesh.compression,
        )
        stack.push_async_callback(server.stop, mesh.drain_ms / 1000)
        metrics_address = _serve_metrics(process, stack)
        _log.info(
            "serving",
            extra={
                "addresses": server.addresses,
                "metrics": metrics_address,
                "transport": resolve(mesh.transport),
                "is_native_built": is_native_built(),
                "settings": show(process.settings),
            },
        )
        warn_of_plain_text(server.addresses, process.tls)
        if serving.started is not None:
            serving.started(server.addresses)
        manager.say("warming up")
        if serving.warm is not None and not await _warm(serving.warm, stop):
            return
        settle_memory()
        health.set_serving(True)
        _log.info("ready")
        manager.ready(f"serving at {', '.join(server.addresses)}")
        await stop.wait()
        _log.info("draining")
        manager.stopping(f"draining, for {mesh.lame_duck_ms + mesh.drain_ms} ms at most")
        health.close()
        if serving.drain is not None:
            serving.drain()
        await asyncio.sleep(mesh.lame_duck_ms / 1000)
    _log.info("stopped")


def settle_memory() -> None:
    """Once a service is warm: what it holds by now lives as long as it does, and need not be searched for garbage.

    Requests leave little garbage that goes in circles; a service with a thousand of them in flight would otherwise
    search them all, several times a second.
    """
    quicken_enums()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def _warm(warm: Callable[[], Awaitable[None]], stop: asyncio.Event) -> bool:
    """Warm up; False when the process was told to stop meanwhile."""
    warming = asyncio.ensure_future(warm())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({warming, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if warming.done():
            warming.result()
            return True
        return False
    finally:
        warming.cancel()
        stopping.cancel()


def _serve_metrics(process: Process[S], stack: AsyncExitStack) -> str:
    """Serve the registry in Prometheus' text format where `metrics_listen` says; "" is nowhere."""
    listen = process.mesh.metrics_listen.get(process.name, "")
    if not listen:
        return ""
    host, _, port = listen.rpartition(":")
    server, thread = start_http_server(int(port), host or "127.0.0.1", process.registry)
    stack.callback(thread.join)
    stack.callback(server.shutdown)
    return f"{host or '127.0.0.1'}:{server.server_port}"
