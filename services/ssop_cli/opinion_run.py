"""`ssop opinion run`: posts of a file through the application, in this process, on the mesh of the state directory."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ssop_chassis.settings import SettingsError
from ssop_cli.board import show_ms
from ssop_cli.detached import run_detached, run_down
from ssop_cli.embedded import TENANT
from ssop_cli.failure import EXIT_SETTINGS, EXIT_USAGE, CommandError
from ssop_cli.lock import lock_holder
from ssop_cli.mesh import find_access
from ssop_cli.opinion_mesh import SOURCE, make_tenant, opinion_section, write_run_settings
from ssop_cli.places import Places
from ssop_cli.post_board import newest_text, values_text
from ssop_cli.summary import spread
from ssop_cli.terminal import visible
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record
from ssop_opinion.entries import DeadLetter
from ssop_opinion.files import STDIN, read_file
from ssop_opinion.intake import Origin
from ssop_opinion.main import PARTS
from ssop_opinion.ports import AlertDesk, Analyst, OnField, Sink, SinkAwayError
from ssop_opinion.process import OpinionProcess, open_process
from ssop_opinion.queue import QueueAwayError
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.wiring import Parts, Setup

_POLL_S: Final = 0.05
_QUEUE_PATIENCE_S: Final = 60.0
_MAX_LETTERS: Final = 10_000
_ROWS: Final = 12
_MARKS: Final[Mapping[str, str]] = {"ok": "green", "invalid": "bold red", "incomplete": "red", "failed": "bold red"}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to do. `in_flight` posts are analysed at the same time."""

    places: Places
    source: Path
    in_flight: int
    timeout_s: float


@dataclass(slots=True)
class Row:
    """A post on its way, or at its end."""

    post: Post
    began_s: float
    fields: dict[str, Any] = field(default_factory=dict)
    analysis: Analysis | None = None


@dataclass(slots=True)
class RunReport:
    """A run. Times in milliseconds and seconds."""

    taken: int = 0
    analyses: list[Analysis] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    wall_s: float = 0.0
    records_file: str = ""

    @property
    def is_good(self) -> bool:
        """Every post became a record with a whole answer."""
        return not self.faults and all(analysis.verdict == "ok" for analysis in self.analyses)

    def to_json(self) -> dict[str, Any]:
        """The run for programs."""
        return {
            "posts": self.taken,
            "records": len(self.analyses),
            "verdicts": dict(Counter(analysis.verdict for analysis in self.analyses)),
            "cache": dict(Counter(analysis.cache or "none" for analysis in self.analyses)),
            "degraded": sum(analysis.degraded_level > 0 for analysis in self.analyses),
            "first_field_ms": _spread_json([a.first_field_ms for a in self.analyses if a.first_field_ms is not None]),
            "total_ms": _spread_json([a.total_ms for a in self.analyses]),
            "dead_letters": self.faults,
            "wall_s": self.wall_s,
            "records_file": self.records_file,
        }


def _spread_json(values: list[float]) -> dict[str, float | None]:
    found = spread(values)
    return {"p50": found.p50, "p95": found.p95}


def run_posts(options: RunOptions, console: Console, notes: Console, *, is_quiet: bool) -> RunReport:
    """Analyse all posts of a source into the records of the state directory. Raises CommandError."""
    if options.source != STDIN and not options.source.is_file():
        raise CommandError(f"{options.source} is no file", exit_code=EXIT_USAGE)
    with running_mesh(options.places, notes):
        try:
            return asyncio.run(_run(options, console, is_quiet=is_quiet))
        except SettingsError as error:
            raise CommandError(str(error), exit_code=EXIT_SETTINGS) from error
        except (SinkAwayError, OSError) as error:
            raise CommandError(f"the run ended: {error}") from error


@contextmanager
def running_mesh(places: Places, notes: Console) -> Iterator[None]:
    """The mesh of a state directory: the one that runs, or one that is started and stopped again."""
    if lock_holder(places.lock) is not None:
        notes.print("using the mesh that runs; it is left running", soft_wrap=True)
        yield
        return
    run_detached(places, ["--state-dir", str(places.state), "--port", "0"], notes)
    try:
        yield
    finally:
        run_down(places, lambda text: notes.print(text, soft_wrap=True))


async def _run(options: RunOptions, console: Console, *, is_quiet: bool) -> RunReport:
    access = find_access(options.places, None)
    make_tenant(options.places)
    section = opinion_section(
        options.places,
        router=access.target,
        max_analyses=options.in_flight,
        batch=min(options.in_flight, 100),
        analysis_timeout_ms=int(options.timeout_s * 1000),
    )
    settings = OpinionSettings.model_validate(section)
    write_run_settings(options.places, section)
    board = Board(console, is_quiet=is_quiet)
    registry = CollectorRegistry()
    began_s = time.monotonic()
    async with open_process(settings, _watched(board), registry) as process:
        stop = asyncio.Event()
        working = asyncio.create_task(process.require_worker().run(stop, options.timeout_s))
        before = {id_ for id_, _ in await process.queue.dead_letters(_MAX_LETTERS)}
        try:
            with board:
                origin = Origin(TENANT, SOURCE, "file", has_unknown_members=True)
                taken = await read_file(options.source, process.intake, origin)
                await _drain(process, working)
        finally:
            stop.set()
            await working
        letters = [letter for id_, letter in await process.queue.dead_letters(_MAX_LETTERS) if id_ not in before]
    return RunReport(
        taken=taken,
        analyses=board.analyses,
        faults=_count(letters),
        wall_s=time.monotonic() - began_s,
        records_file=str(settings.records_file),
    )


def _count(letters: list[DeadLetter]) -> dict[str, int]:
    return dict(Counter(letter.reason for letter in letters))


async def _drain(process: OpinionProcess, working: "asyncio.Task[None]") -> None:
    """Return when no post waits. Raises what ended the worker, and CommandError when nobody knows for a minute."""
    heard_s = time.monotonic()
    while not working.done():
        try:
            queued, _ = await process.queue.sizes()
            heard_s = time.monotonic()
        except QueueAwayError as error:
            if time.monotonic() - heard_s > _QUEUE_PATIENCE_S:
                raise CommandError("the queue's Redis does not answer any more") from error
        else:
            if not queued:
                return
        await asyncio.sleep(_POLL_S)
    working.result()


def _watched(board: "Board") -> Parts:
    """The parts of a process, with an analyst that tells the board."""

    @asynccontextmanager
    async def open_analyst(setup: Setup) -> AsyncIterator[Analyst]:
        async with PARTS.open_analyst(setup) as analyst:
            yield WatchedAnalyst(analyst, board)

    @asynccontextmanager
    async def open_desk(setup: Setup, sink: Sink) -> AsyncIterator[AlertDesk]:
        async with PARTS.open_desk(setup, sink) as desk:
            yield WatchedDesk(desk, board)

    return replace(PARTS, open_analyst=open_analyst, open_desk=open_desk)


class WatchedDesk:
    """An AlertDesk that tells a board of records, before another one is told."""

    def __init__(self, desk: AlertDesk, board: "Board") -> None:
        self._desk = desk
        self._board = board

    def field_arrived(self, post: Post, name: str, value: Any, now_ms: int) -> None:
        """See AlertDesk."""
        self._desk.field_arrived(post, name, value, now_ms)

    async def record_stored(self, record: Record, now_ms: int) -> None:
        """See AlertDesk."""
        self._board.store(record)
        await self._desk.record_stored(record, now_ms)


class WatchedAnalyst:
    """An Analyst that tells a board what another one does."""

    def __init__(self, analyst: Analyst, board: "Board", now_s: Callable[[], float] = time.monotonic) -> None:
        self._analyst = analyst
        self._board = board
        self._now_s = now_s

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        """See Analyst."""
        row = self._board.begin(Row(post, self._now_s()))

        def arrived(name: str, value: Any) -> None:
            row.fields[name] = value
            on_field(name, value)

        try:
            return await self._analyst.analyse(post, arrived)
        finally:
            self._board.end(row)


class Board:
    """The posts on the terminal: those in flight live, a line for each record."""

    def __init__(self, console: Console, *, is_quiet: bool) -> None:
        self._stored: dict[str, Analysis] = {}
        self._console = console
        self._is_quiet = is_quiet
        self._running: dict[int, Row] = {}
        self._is_live = console.is_terminal and not is_quiet
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> None:
        if self._is_live:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def begin(self, row: Row) -> Row:
        """A post is begun."""
        self._running[id(row)] = row
        return row

    def end(self, row: Row) -> None:
        """It is not analysed any more: it has its answer, or will be tried again."""
        del self._running[id(row)]

    def store(self, record: Record) -> None:
        """A record is in the sink; one that is told twice counts once."""
        is_known = record.key in self._stored
        self._stored[record.key] = record.analysis
        if not is_known and not self._is_quiet:
            self._console.print(_table([Row(record.post, 0.0, analysis=record.analysis)]))

    @property
    def analyses(self) -> list[Analysis]:
        """Those of the records."""
        return list(self._stored.values())

    def _render(self) -> Group:
        rows = list(self._running.values())
        head = Text(f"{len(self._stored)} records, {len(rows)} in flight", style="bold")
        return Group(_table(rows[:_ROWS]), head)


def _table(rows: list[Row]) -> Table:
    # Fixed widths keep the columns of one-row tables in line.
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, expand=True)
    for width in (14, 10, 4, 8, 6, 6):
        table.add_column(width=width, no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        analysis = row.analysis
        if analysis is None:
            table.add_row(Text(visible(row.post.id)), "...", "", "", "", "", newest_text(row.fields))
            continue
        answer = values_text(analysis.fields) if analysis.verdict == "ok" else Text(visible(analysis.reason), "red")
        table.add_row(
            Text(visible(row.post.id)),
            Text(analysis.verdict, style=_MARKS.get(analysis.verdict, "")),
            analysis.tier,
            analysis.cache,
            show_ms(analysis.first_field_ms),
            show_ms(analysis.total_ms),
            answer,
        )
    return table


def summary_table(report: RunReport) -> Table:
    """A run, for people."""
    found = report.to_json()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    rate = len(report.analyses) / report.wall_s if report.wall_s > 0 else 0.0
    table.add_row(
        "posts", f"{report.taken} taken, {len(report.analyses)} analysed in {report.wall_s:.1f} s ({rate:.2f} a second)"
    )
    table.add_row("verdicts", _shares(found["verdicts"]))
    table.add_row("cache", _shares(found["cache"]))
    for name in ("first_field_ms", "total_ms"):
        table.add_row(name.removesuffix("_ms").replace("_", " "), ", ".join(
            f"{word} {show_ms(value)}" for word, value in found[name].items()
        ))  # fmt: skip
    if found["degraded"]:
        table.add_row("degraded", Text(str(found["degraded"]), style="red"))
    if report.faults:
        table.add_row("dead letters", Text(_shares(report.faults), style="red"))
    table.add_row("records", report.records_file)
    return table


def _shares(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "-"
