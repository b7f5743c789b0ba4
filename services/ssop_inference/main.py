"""The `ssop-inference` process: a node."""

import logging
from contextlib import AsyncExitStack

from ssop.v1 import inference_pb2
from ssop_chassis.call import bind
from ssop_chassis.errors import MeshError
from ssop_chassis.serving import Process, Serving, run_service
from ssop_chassis.settings import SettingsError
from ssop_inference.assembly import build_node
from ssop_inference.metrics import NodeMetrics
from ssop_inference.models import ModelError
from ssop_inference.servicer import InferenceServicer
from ssop_inference.settings import InferenceSettings


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
    warm_up_timeout_s = settings.warm_up_timeout_ms / 1000
    servicer = InferenceServicer(
        node,
        NodeMetrics(process.registry),
        max_schemas=settings.max_schemas,
        warm_up_timeout_s=warm_up_timeout_s,
    )

    async def warm() -> None:
        try:
            await node.start(timeout_s=warm_up_timeout_s)
        except MeshError as error:
            raise SettingsError(error.message) from error

    service = bind(inference_pb2.DESCRIPTOR.services_by_name["InferenceService"], servicer)
    return Serving([service], settings.listen, warm=warm, drain=node.drain)


def run() -> None:
    """Run until told to stop."""
    run_service("inference", InferenceSettings, build)


if __name__ == "__main__":
    run()
