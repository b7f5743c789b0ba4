"""`ssop reload`: the services of a running mesh read their settings again."""

import os
import signal
from pathlib import Path
from typing import Final

from ssop_chassis.settings import MeshSettings, SettingsError, load_settings
from ssop_cli.failure import EXIT_NO_MESH, EXIT_SETTINGS, CommandError
from ssop_cli.places import Places
from ssop_cli.report import start_ticks
from ssop_cli.status import local_report
from ssop_cli.up import SECTIONS

_READY: Final = "ready"


def reload_mesh(places: Places) -> list[str]:
    """Tell each service that is ready; returns their names. Raises CommandError, and tells none, for a bad file."""
    report = local_report(places)
    if report is None:
        raise CommandError(
            f"no mesh runs on {places.state}",
            advice="start one with: ssop up",
            exit_code=EXIT_NO_MESH,
            reason="NO_MESH",
        )
    services = [child for child in report.children if child.name in SECTIONS and child.state == _READY]
    try:
        load_settings(MeshSettings, "mesh", path=Path(report.config), environ=os.environ)
        for child in services:
            load_settings(SECTIONS[child.name], child.name, path=Path(report.config), environ=os.environ)
    except SettingsError as error:
        raise CommandError(str(error), advice="nothing was changed", exit_code=EXIT_SETTINGS) from error
    told = []
    for child in services:
        # Its number may be another process's by now.
        if child.pid and start_ticks(child.pid) == child.start_ticks:
            os.kill(child.pid, signal.SIGHUP)
            told.append(child.name)
    return told
