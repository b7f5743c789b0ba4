"""The router process: `python -m ssop_router.main --config ssop.toml`."""

import asyncio
import logging
import random
from contextlib import AsyncExitStack, suppress

from ssop_chassis.call import Peer
from ssop_chassis.grpc_transport import connect
from ssop_chassis.serving import Process, Serving, run_service, wall_clock_ms
from ssop_chassis.settings import SettingsError
from ssop_router.assembly import assemble
from ssop_router.inspection import monotonic_ms
from ssop_router.keys import KeysFile
from ssop_router.scoring import open_classifier
from ssop_router.settings import RouterSettings

_log = logging.getLogger(__name__)


async def build(process: Process[RouterSettings], stack: AsyncExitStack) -> Serving:
    """Connect to everything, and serve. Raises SettingsError where the keys file can't be used."""
    settings = process.settings

    def open_peer(address: str) -> Peer:
        peer = connect(address, max_message_bytes=process.mesh.max_message_bytes)
        stack.push_async_callback(peer.close)
        return peer

    # Reading an artefact blocks, and nothing is served yet.
    classifier = open_classifier(settings)
    if classifier.model is not None:
        _log.info("the classifier is loaded", extra={"version": classifier.model.version})
    elif classifier.fault != "off":
        _log.warning("routing without a classifier", extra={"fault": classifier.fault, "detail": classifier.detail})
    router = assemble(
        settings,
        node_peers={node.address: open_peer(node.address) for node in settings.nodes},
        cache_peer=open_peer(settings.cache_address) if settings.cache_address else None,
        rag_peer=open_peer(settings.rag_address) if settings.rag_address else None,
        registry=process.registry,
        sign=process.signer.metadata,
        clock_ms=monotonic_ms,
        rng=random.Random(),  # noqa: S311 - spreads load, guards nothing
        classifier=classifier,
    )
    try:
        keys = KeysFile(
            settings.keys_file,
            process.secret,
            now_ms=wall_clock_ms,
            on_failure=router.metrics.keys_reload_failures.inc,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"[router] keys_file: {error}") from error
    stack.push_async_callback(router.background.finish, settings.settle_timeout_ms / 1000)
    for work in (router.nodes.watch(), keys.watch(settings.keys_poll_ms)):
        stack.push_async_callback(_stop, asyncio.create_task(work))
    return Serving(
        (router.service, router.documents), settings.listen, authenticate=keys.authenticate, drain=router.draining.set
    )


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    run_service("router", RouterSettings, build)
