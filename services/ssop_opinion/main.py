"""The opinion process: `python -m ssop_opinion.main --config ssop.toml`."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

import uvloop

from ssop_chassis import logs
from ssop_chassis.reload import Reloader
from ssop_chassis.settings import EXIT_SETTINGS, MeshSettings, SettingsError, load_settings
from ssop_opinion.analyst import open_analyst
from ssop_opinion.desk_opening import open_desk
from ssop_opinion.pages import page_routes
from ssop_opinion.ports import SinkAwayError
from ssop_opinion.process import serve
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.sinks import open_sink
from ssop_opinion.wiring import Parts

PARTS: Final = Parts(open_analyst, open_sink, open_desk, page_routes)
_log = logging.getLogger(__name__)


def run(parts: Parts = PARTS) -> NoReturn:
    """Run until SIGTERM or SIGINT, then exit: 0 after a drain, 78 on bad settings, 1 on other faults."""
    parser = argparse.ArgumentParser(prog="ssop-opinion")
    parser.add_argument("--config", type=Path, default=os.environ.get("SSOP_CONFIG"), help="path of ssop.toml")
    config: Path | None = parser.parse_args().config

    def load() -> tuple[MeshSettings, OpinionSettings]:
        mesh = load_settings(MeshSettings, "mesh", path=config, environ=os.environ)
        return mesh, load_settings(OpinionSettings, "opinion", path=config, environ=os.environ)

    try:
        mesh, settings = load()
    except SettingsError as error:
        sys.stderr.write(f"ssop-opinion: {error}\n")
        sys.exit(EXIT_SETTINGS)
    logs.configure("opinion", mesh.log_level)
    # Its warnings name each malformed request, which anybody can send.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    # They log every request, each with its URL.
    for name in ("httpx", "elastic_transport", "opensearch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        uvloop.run(serve(mesh, settings, parts, Reloader(mesh, settings, load, ())))
    except SettingsError as error:
        sys.stderr.write(f"ssop-opinion: {error}\n")
        sys.exit(EXIT_SETTINGS)
    except (OSError, SinkAwayError) as error:
        _log.critical("the service can't run: %s", error)
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    run()
