"""The router process: `python -m ssop_router.main --config ssop.toml`."""

import asyncio
import logging
import os
import random
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from typing import NoReturn

from ssop.v1 import keys_pb2
from ssop_chassis.call import Peer, bind
from ssop_chassis.deadline import monotonic_ms
from ssop_chassis.identity import Principal
from ssop_chassis.serving import Process, Serving, run_service, wall_clock_ms
from ssop_chassis.settings import SettingsError
from ssop_chassis.transport import ConnectedPeer, connector
from ssop_router.assembly import OWN_PRINCIPAL, assemble
from ssop_router.canned import load_canned
from ssop_router.dependency import Dependency, InnerMetadata
from ssop_router.discovery import Joining
from ssop_router.key_admin import KeyServicer
from ssop_router.keys import Keys, KeysFile, KeysStore
from ssop_router.metrics import RouterMetrics
from ssop_router.profiles import RELOADABLE, Regimes
from ssop_router.scoring import open_classifier
from ssop_router.settings import RouterSettings
from ssop_router.similar_settings import load_similar

_log = logging.getLogger(__name__)


async def build(process: Process[RouterSettings], stack: AsyncExitStack) -> Serving:
    """Connect to everything, and serve. Raises SettingsError where the keys file can't be used."""
    settings = process.settings

    joining = _make_joining(process)

    def open_peer(address: str) -> Peer:
        peer = joining.open_peer(address, "")
        stack.push_async_callback(peer.close)
        return peer

    # Reading an artefact blocks, and nothing is served yet.
    classifier = open_classifier(settings)
    if classifier.model is not None:
        told = {
            "version": classifier.model.version,
            "provider": classifier.provider,
            "missing": classifier.detail,
            "slow_because": classifier.slow_because,
        }
        _log.log(logging.WARNING if classifier.detail else logging.INFO, "the classifier is loaded", extra=told)
    elif classifier.fault != "off":
        _log.warning("routing without a classifier", extra={"fault": classifier.fault, "detail": classifier.detail})

    def renew(principal: Principal) -> Principal:
        return keys.renew(principal)

    cache_peer = open_peer(settings.cache_address) if settings.cache_address else None
    router = assemble(
        settings,
        node_peers={node.address: open_peer(node.address) for node in settings.static_nodes},
        cache_peer=cache_peer,
        rag_peer=open_peer(settings.rag_address) if settings.rag_address else None,
        registry=process.registry,
        sign=process.signer.metadata,
        renew=renew,
        clock_ms=monotonic_ms,
        wall_ms=wall_clock_ms,
        rng=random.Random(),  # noqa: S311 - spreads load, guards nothing
        classifier=classifier,
        environ=os.environ,
        canned=load_canned(settings.canned),
        similar_rules=load_similar(settings.similar),
        joining=joining,
    )
    process.reloads.append(lambda new: _reload(router.regimes, new))
    keys, key_servicer = _open_keys(process, cache_peer, router.metrics)
    await keys.refresh()
    stack.push_async_callback(_stop, asyncio.create_task(router.recorder.run()))
    stack.push_async_callback(router.background.finish, settings.settle_timeout_ms / 1000)
    works = [
        router.nodes.watch(),
        keys.watch(settings.keys_poll_ms, key_servicer.rehash if cache_peer is not None else None),
    ]
    if router.discovery is not None:
        await router.discovery.look()
    works += [part.run() for part in (router.hints, router.discovery) if part is not None]
    for work in works:
        stack.push_async_callback(_stop, asyncio.create_task(work))

    async def warm() -> None:
        # A router that knows no node yet would refuse what a balancer sends it.
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.nodes_wait_ms / 1000):
                await router.nodes.hear_all()

    return Serving(
        (*router.services, bind(keys_pb2.DESCRIPTOR.services_by_name["KeyService"], key_servicer)),
        settings.listen,
        authenticate=keys.authenticate,
        warm=warm,
        drain=router.sessions.drain,
    )


def _make_joining(process: Process[RouterSettings]) -> Joining:
    """How nodes are met that join at run time. Raises SettingsError where the transport is not built."""
    connect = connector(process.mesh.transport, process.mesh.compression)

    def open_peer(address: str, server_name: str) -> Peer:
        return connect(
            address, max_message_bytes=process.mesh.max_message_bytes, tls=process.tls, server_name=server_name
        )

    async def close_peer(peer: Peer) -> None:
        await (peer.finish() if isinstance(peer, ConnectedPeer) else peer.close())

    return Joining(open_peer, close_peer, process.secrets.accepted)


def _reload(regimes: Regimes, settings: RouterSettings) -> Collection[str]:
    regimes.take(settings)
    return RELOADABLE


def _open_keys(
    process: Process[RouterSettings], cache_peer: Peer | None, metrics: RouterMetrics
) -> tuple[Keys, KeyServicer]:
    """The keys, and the service that changes them. Raises SettingsError where the file can't be used."""
    settings = process.settings
    try:
        file = KeysFile(settings.keys_file, on_failure=metrics.keys_reload_failures.labels("file").inc)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"[router] keys_file: {error}") from error

    def sign_own() -> InnerMetadata:
        return process.signer.metadata(OWN_PRINCIPAL)

    # Apart from the one that admission goes through: what happens to one says nothing about the other.
    store = copy = None
    timeout_s = settings.keys_timeout_ms / 1000
    if cache_peer is not None:
        store = Dependency("keys", cache_peer, skip_ms=settings.keys_poll_ms, clock_ms=monotonic_ms)
        copy = KeysStore(
            store,
            metadata=sign_own,
            timeout_s=timeout_s,
            clock_ms=monotonic_ms,
            on_failure=metrics.keys_reload_failures.labels("store").inc,
        )
    keys = Keys(
        file,
        copy,
        process.secrets,
        max_age_ms=settings.keys_max_age_ms,
        now_ms=wall_clock_ms,
        on_age=lambda age_ms: metrics.keys_age_seconds.set(age_ms / 1000),
        on_fault=metrics.keys_reload_failures.labels("watch").inc,
    )
    servicer = KeyServicer(
        store,
        process.secrets.own,
        metadata=sign_own,
        file_records=lambda: file.records,
        timeout_s=timeout_s,
        now_ms=wall_clock_ms,
    )
    return keys, servicer


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def run() -> NoReturn:
    """Run until told to stop."""
    run_service("router", RouterSettings, build)


if __name__ == "__main__":
    run()
