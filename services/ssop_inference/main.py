"""The `ssop-inference` process: a node."""

import logging
import secrets
from contextlib import AsyncExitStack
from typing import Final

from ssop.v1 import inference_pb2
from ssop_chassis.call import bind
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import RESERVED_TENANT, Principal
from ssop_chassis.serving import Process, Serving, run_service, wall_clock_ms
from ssop_chassis.settings import SettingsError
from ssop_chassis.transport import connector
from ssop_inference.announcing import Announcer, AnnouncingMetrics
from ssop_inference.assembly import build_node
from ssop_inference.gpu import GpuWatch, load_nvml
from ssop_inference.membership import MembershipServicer
from ssop_inference.metrics import NodeMetrics, ResourceMetrics
from ssop_inference.models import ModelError
from ssop_inference.servicer import InferenceServicer
from ssop_inference.settings import InferenceSettings

_OWN_PRINCIPAL: Final = Principal(RESERVED_TENANT, "inference")


async def build(process: Process[InferenceSettings], stack: AsyncExitStack) -> Serving:
    """Make the node of the settings. Raises SettingsError when a model's file is not there."""
    settings = process.settings
    # It says every request at `info`, with its URL.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        node = build_node(settings)
    except ModelError as error:
        raise SettingsError(str(error)) from error
    stack.push_async_callback(node.close)
    gpus = GpuWatch(load_nvml())
    gpus.start()
    stack.callback(gpus.stop)
    node.gpus = lambda: gpus.sample
    process.registry.register(ResourceMetrics(node.memory, node.gpus))
    warm_up_timeout_s = settings.warm_up_timeout_ms / 1000
    servicer = InferenceServicer(
        node,
        NodeMetrics(process.registry),
        max_schemas=settings.max_schemas,
        warm_up_timeout_s=warm_up_timeout_s,
        linger_ms=settings.linger_ms,
    )

    announcer = open_announcer(process, stack) if settings.announce else None
    listened: list[str] = []

    async def warm() -> None:
        try:
            await node.start(timeout_s=warm_up_timeout_s)
        except MeshError as error:
            raise SettingsError(error.message) from error
        if announcer is not None:
            announcer.begin(settings.announce_address or listened[0])

    def drain() -> None:
        node.drain()
        if announcer is not None:
            announcer.withdraw()

    service = bind(inference_pb2.DESCRIPTOR.services_by_name["InferenceService"], servicer)
    services = [service, MembershipServicer(process.secrets.own).service()]
    return Serving(services, settings.listen, started=listened.extend, warm=warm, drain=drain)


def open_announcer(process: Process[InferenceSettings], stack: AsyncExitStack) -> Announcer:
    """What announces the node; the stack closes it."""
    settings = process.settings
    connect = connector(process.mesh.transport, process.mesh.compression)
    registry = connect(settings.cache_address, max_message_bytes=process.mesh.max_message_bytes, tls=process.tls)
    stack.push_async_callback(registry.close)
    announcer = Announcer(
        registry,
        AnnouncingMetrics(process.registry),
        node=settings.node,
        instance=secrets.token_hex(16),
        secret=process.secrets.own,
        lease_ms=settings.announce_lease_ms,
        metadata=lambda: process.signer.metadata(_OWN_PRINCIPAL),
        wall_ms=wall_clock_ms,
    )
    stack.push_async_callback(announcer.close)
    return announcer


def run() -> None:
    """Run until told to stop."""
    run_service("inference", InferenceSettings, build)


if __name__ == "__main__":
    run()
