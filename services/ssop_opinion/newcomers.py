"""SIGHUP: settings are read again, and tenants whose files are new come in, all of them or none."""

import asyncio
import logging
import sqlite3

from ssop_chassis.reload import Reloader
from ssop_chassis.settings import SettingsError
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.tenants import load_tenants
from ssop_opinion.wiring import Setup

_log = logging.getLogger(__name__)


async def admit_newcomers(setup: Setup) -> None:
    """Read the tenants' folder again and let in whom it has new. The log says what waits for a restart.

    Raises SettingsError and what a store raises; nothing has changed then.
    """
    found = await asyncio.to_thread(load_tenants, setup.settings.tenants_directory)
    new = {name: tenant for name, tenant in found.items() if name not in setup.tenants}
    changed = [name for name, tenant in setup.tenants.items() if found.get(name) != tenant]
    if new:
        for let_in in [await admit(new) for admit in setup.admits]:
            let_in()
        setup.tenants.add(new)
    _log.warning("the tenants were read again", extra={"new": sorted(new), "needs_restart": sorted(changed)})


async def reload_when_told(hung_up: asyncio.Event, reloader: Reloader[OpinionSettings], setup: Setup) -> None:
    """Reload each time that the event is set, until cancelled."""
    while True:
        await hung_up.wait()
        hung_up.clear()
        reloader.reload()
        try:
            await admit_newcomers(setup)
        except SettingsError as error:
            _log.error("no tenant came in", extra={"faults": str(error).splitlines()})
        except (OSError, sqlite3.Error):
            _log.exception("no tenant came in")
