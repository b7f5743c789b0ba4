"""The process `ssop-ebpf`: frames and durations as the kernel sees them, for Prometheus. Runs as root."""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from prometheus_client import CollectorRegistry, start_http_server

from ssop_chassis import logs
from ssop_chassis.settings import EXIT_SETTINGS, SettingsError, load_settings, show
from ssop_ebpf.collector import Watch
from ssop_ebpf.kernel import Kernel, KernelError
from ssop_ebpf.probes import Probes
from ssop_ebpf.processes import Processes
from ssop_ebpf.settings import EbpfSettings

_FIRST_PID_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the namespace whose process ids the kernel gives to everybody (linux/proc_ns.h, PROC_PID_INIT_INO)."""
_PROC: Final = Path("/proc")
_log = logging.getLogger(__name__)


def serve(settings: EbpfSettings, stop: threading.Event) -> None:
    """Watch until told to stop. Raises KernelError, and OSError where the address is taken."""
    with ExitStack() as stack:
        kernel = Kernel(settings.object_file)
        stack.callback(kernel.close)
        namespace = (_PROC / "self/ns/pid").stat()
        if namespace.st_ino != _FIRST_PID_NAMESPACE:
            kernel.put("scopes", 0, [namespace.st_dev, namespace.st_ino])
        processes = Processes(_PROC)
        folders = settings.codec_dirs or _own_folder()
        probes = Probes(kernel, processes if settings.is_host_wide else None, _PROC, folders)
        stack.callback(probes.close)
        watch = Watch(kernel, processes, probes)
        watch.scan()
        registry = CollectorRegistry()
        registry.register(watch)
        host, _, port = settings.listen.rpartition(":")
        server, thread = start_http_server(int(port), host or "127.0.0.1", registry)
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        metrics = f"{host or '127.0.0.1'}:{server.server_port}"
        _log.info("serving", extra={"metrics": metrics, "settings": show(settings)})
        next_scan_s = 0.0
        while not stop.wait(settings.poll_ms / 1000):
            watch.poll()
            if time.monotonic() >= next_scan_s:
                watch.scan()
                next_scan_s = time.monotonic() + settings.scan_ms / 1000
    _log.info("stopped")


def _own_folder() -> Sequence[Path]:
    spec = find_spec("ssop_codec")
    return [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []


def run() -> NoReturn:
    """Run until SIGTERM or SIGINT, then exit: 0, 78 on bad settings, 1 where the kernel refuses."""
    parser = argparse.ArgumentParser(prog="ssop-ebpf")
    parser.add_argument("--config", type=Path, default=os.environ.get("SSOP_CONFIG"), help="path of ssop.toml")
    config: Path | None = parser.parse_args().config
    try:
        settings = load_settings(EbpfSettings, "ebpf", path=config, environ=os.environ)
    except SettingsError as error:
        sys.stderr.write(f"ssop-ebpf: {error}\n")
        sys.exit(EXIT_SETTINGS)
    logs.configure("ebpf", "info")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        serve(settings, stop)
    except (KernelError, OSError) as error:
        _log.critical("the exporter can't run: %s", error)
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    run()
