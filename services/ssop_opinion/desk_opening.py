"""Opens the desk of a process, with a courier for each channel."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import SystemRandom
from typing import Any

from ssop_opinion.channels import check_routes, make_bucket, make_notifier
from ssop_opinion.courier import Courier
from ssop_opinion.desk import Desk
from ssop_opinion.notifiers.notifier import open_client
from ssop_opinion.ports import Sink
from ssop_opinion.settings import ChannelSettings
from ssop_opinion.tenants import Tenant
from ssop_opinion.wiring import Setup


@asynccontextmanager
async def open_desk(setup: Setup, sink: Sink) -> AsyncIterator[Desk]:  # noqa: ARG001 - see wiring.OpenDesk
    """The desk of a process, until the block ends. Raises SettingsError, OSError and sqlite3.Error."""
    settings = setup.settings
    policies = {name: tenant.alerts for name, tenant in setup.tenants.items()}
    check_routes(policies, settings.channels)
    desk = Desk(policies, settings.state_directory, setup.registry)
    async with open_client() as client:
        for name, channel in settings.channels.items():
            notifier = make_notifier(channel, client, settings.page_url)
            desk.couriers.append(_make_courier(desk, name, channel, notifier))
        await desk.open()

        async def admit(tenants: Mapping[str, Tenant]) -> Callable[[], None]:
            new = {name: tenant.alerts for name, tenant in tenants.items()}
            check_routes(new, settings.channels)
            return await desk.admit(new)

        setup.admits.append(admit)
        running = asyncio.ensure_future(desk.run())
        try:
            yield desk
        finally:
            running.cancel()
            await asyncio.wait({running})
            await desk.close()


def _make_courier(desk: Desk, name: str, channel: ChannelSettings, notifier: Any) -> Courier:
    return Courier(
        name,
        notifier,
        make_bucket(channel),
        desk.on_store,
        give_up_after_ms=channel.give_up_after_s * 1_000,
        now_ms=lambda: time.time_ns() // 1_000_000,
        rng=SystemRandom(),
        count=desk.count_message,
    )
