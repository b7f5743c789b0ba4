"""The process `ssop-rag`."""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import NoReturn

# Read when numpy is first imported. The pool gives parallelism; BLAS threads on top spin against it (a scan of 10,000
# rows took 18 ms instead of 0.8 on two busy cores).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from ssop_chassis.serving import Process, Serving, run_service
from ssop_rag.embedder import EMBEDDERS
from ssop_rag.pool import Priority
from ssop_rag.service import open_service
from ssop_rag.settings import RagSettings

_WARM_TEXT = "warm-up 预热"


async def build(process: Process[RagSettings], stack: AsyncExitStack) -> Serving:
    """Open the index and load the embedder; SERVING after a real embedding."""
    settings = process.settings
    embedder = await asyncio.to_thread(
        EMBEDDERS[settings.embedder],
        settings.embedder_provider,
        settings.embedder_precision,
        settings.embedder_runtime,
    )
    rag = open_service(settings, embedder, process.registry, stack)

    async def warm() -> None:
        await rag.pool.run(Priority.QUERY, lambda: embedder.embed_query([_WARM_TEXT]))

    return Serving([rag.service], settings.listen, warm=warm)


def run() -> NoReturn:
    """Run until told to stop."""
    run_service("rag", RagSettings, build)


if __name__ == "__main__":
    run()
