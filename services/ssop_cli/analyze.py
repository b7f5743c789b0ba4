"""`ssop analyze`: every post of a file through the mesh, with fields shown as they arrive."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ssop_cli.failure import EXIT_NO_MESH, EXIT_USAGE, CommandError
from ssop_cli.mesh import Access, cache_name, explain, tier_name
from ssop_cli.posts import Asker, Post
from ssop_cli.summary import Outcome, Spread, Summary, summarise
from ssop_sdk import AsyncSsopClient, OutputIncomplete, OutputInvalid, SsopError

MAX_OUTPUT_TOKENS: Final = 768
_MARKS: Final[Mapping[str, str]] = {
    "ok": "green",
    "invalid": "bold red",
    "incomplete": "red",
    "error": "bold red",
    "": "dim",
}
_CACHE_WORDS: Final[Mapping[str, str]] = {
    "policy_off": "off",
    "temperature": "off",
    "unavailable": "down",
}


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """What to do. `timeout_s` is for one post."""

    batch_size: int
    timeout_s: float
    policy: str
    model: str
    schema: Mapping[str, Any]
    asker: Asker


@dataclass(slots=True)
class Progress:
    """A post on its way; `outcome` is set at its end."""

    post: Post
    started_s: float
    tier: str = ""
    cache: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    first_field_ms: float | None = None
    outcome: Outcome | None = None


async def analyze_posts(
    posts: Sequence[Post],
    access: Access,
    options: AnalyzeOptions,
    *,
    changed: Callable[[Progress], None],
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Analyse all posts, `batch_size` at a time; outcomes in the order of the posts.

    Raises CommandError when no mesh answers at all. What fails for one post only is its outcome.
    """
    outcomes: list[Outcome | None] = [None] * len(posts)
    queue = iter(enumerate(posts))

    async def work(client: AsyncSsopClient) -> None:
        for index, post in queue:
            progress = Progress(post, clock())
            changed(progress)
            progress.outcome = outcomes[index] = await _analyze(
                client, progress, access=access, options=options, changed=changed, clock=clock
            )
            changed(progress)

    async with AsyncSsopClient(
        api_key=access.api_key,
        target=access.target,
        output_schema=dict(options.schema),
        timeout_s=options.timeout_s,
        policy=options.policy,
        batch_size=options.batch_size,
    ) as client:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(options.batch_size, len(posts))):
                    group.create_task(work(client))
        except* CommandError as errors:
            raise errors.exceptions[0] from None
    return [outcome for outcome in outcomes if outcome is not None]


async def _analyze(
    client: AsyncSsopClient,
    progress: Progress,
    *,
    access: Access,
    options: AnalyzeOptions,
    changed: Callable[[Progress], None],
    clock: Callable[[], float],
) -> Outcome:
    verdict, reason = "ok", ""
    stream = client.generate(
        options.asker.messages_for(progress.post),
        model=options.model,
        max_output_tokens=MAX_OUTPUT_TOKENS,
    )
    async with stream:
        try:
            async for frame in stream:
                if progress.first_field_ms is None:
                    progress.first_field_ms = (clock() - progress.started_s) * 1000
                progress.tier = tier_name(stream.decision)
                progress.cache = cache_name(stream.decision)
                progress.fields.update(frame.delta)
                changed(progress)
        except OutputInvalid as error:
            verdict, reason = "invalid", f"{error.rule} at {error.pointer or '/'}"
        except OutputIncomplete as error:
            verdict, reason = "incomplete", error.incomplete_reason
        except SsopError as error:
            failure = explain(error, access)
            if failure.exit_code == EXIT_NO_MESH:
                raise failure from error
            verdict, reason = "error", error.reason
    accounting = stream.accounting
    usage = stream.usage
    return Outcome(
        post_id=progress.post.id,
        verdict=verdict,
        reason=reason,
        first_field_ms=progress.first_field_ms,
        total_ms=(clock() - progress.started_s) * 1000,
        tier=tier_name(stream.decision),
        model=stream.decision.model if stream.decision is not None else "",
        cache=cache_name(stream.decision),
        frames_sent=accounting.frames_sent if accounting is not None else stream.frames_received,
        frames_received=stream.frames_received,
        frames_verified=stream.frames_verified,
        input_tokens=usage.input_tokens if usage is not None else 0,
        output_tokens=usage.output_tokens if usage is not None else 0,
        degraded_level=stream.status.degraded_level if stream.status is not None else 0,
        fields=dict(progress.fields),
    )


def run_analyze(
    posts: Sequence[Post], access: Access, options: AnalyzeOptions, console: Console, *, is_quiet: bool
) -> tuple[list[Outcome], Summary]:
    """Analyse posts and show them as they come: a live table on a terminal, a line a post elsewhere."""
    board = _Board(console, posts, len(options.schema.get("properties", {})), is_quiet=is_quiet)
    started_s = time.monotonic()
    with board:
        outcomes = asyncio.run(analyze_posts(posts, access, options, changed=board.update))
    return outcomes, summarise(outcomes, time.monotonic() - started_s)


class _Board:
    """The posts on the terminal."""

    def __init__(self, console: Console, posts: Sequence[Post], fields: int, *, is_quiet: bool) -> None:
        self._console = console
        self._count = len(posts)
        self._fields = fields
        self._is_quiet = is_quiet
        self._is_live = console.is_terminal and not is_quiet
        self._seen: dict[str, Progress] = {}
        self._done = 0
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> None:
        if not self._is_quiet:
            self._console.print(self._table([], has_header=True))
        if self._is_live:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        """Take what has changed about a post."""
        self._seen[progress.post.id] = progress
        if progress.outcome is None:
            return
        self._done += 1
        if not self._is_quiet:
            self._console.print(self._table([progress], has_header=False))

    def _render(self) -> Group:
        running = [p for p in self._seen.values() if p.outcome is None]
        head = Text(f"{self._done} of {self._count} posts, {len(running)} in flight", style="bold")
        return Group(self._table(running, has_header=False), head)

    def _table(self, rows: Sequence[Progress], *, has_header: bool) -> Table:
        # Fixed widths keep the columns of one-row tables in line.
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", show_header=has_header, expand=True)
        table.add_column("post", width=9, no_wrap=True)
        table.add_column("fields", width=6, justify="right")
        table.add_column("verdict", width=10, no_wrap=True)
        table.add_column("tier", width=4)
        table.add_column("cache", width=8, no_wrap=True)
        table.add_column("first", width=6, justify="right")
        table.add_column("total", width=6, justify="right")
        table.add_column("answer", ratio=1, no_wrap=True, overflow="ellipsis")
        for row in rows:
            table.add_row(*self._cells(row))
        return table

    def _cells(self, row: Progress) -> Iterator[Text]:
        outcome = row.outcome
        verdict = outcome.verdict if outcome is not None else ""
        yield Text(row.post.id)
        yield Text(f"{len(row.fields)}/{self._fields}")
        yield Text(verdict or "...", style=_MARKS[verdict])
        yield Text(row.tier)
        yield Text(
            _CACHE_WORDS.get(row.cache, row.cache),
            style="cyan" if row.cache in {"hit", "follower", "similar"} else "",
        )
        if outcome is None:
            yield Text(show_ms(row.first_field_ms) if row.first_field_ms is not None else "")
            yield Text(show_ms((time.monotonic() - row.started_s) * 1000), style="dim")
        else:
            yield Text(show_ms(outcome.first_field_ms))
            yield Text(show_ms(outcome.total_ms))
        if outcome is not None and outcome.reason:
            yield Text(outcome.reason, style="red")
        elif outcome is not None:
            yield values_text(row.fields)
        else:
            yield newest_text(row.fields)


def values_text(fields: Mapping[str, Any]) -> Text:
    """The values of a whole answer on one line, in the order of the schema."""
    return Text(" · ").join(Text(_show(value)) for value in fields.values())


def newest_text(fields: Mapping[str, Any]) -> Text:
    """Fields on one line while they arrive, the newest first."""
    text = Text()
    for name in list(fields)[::-1]:
        text.append(f"{name}=", style="dim").append(f"{_show(fields[name])} ")
    return text


def _show(value: Any) -> str:
    return _one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def show_ms(value_ms: float | None) -> str:
    """A duration for people."""
    if value_ms is None:
        return "-"
    return f"{value_ms:.0f} ms" if value_ms < 1000 else f"{value_ms / 1000:.1f} s"


def _show_spread(spread: Spread) -> str:
    return f"p50 {show_ms(spread.p50)}, p95 {show_ms(spread.p95)}"


def _show_shares(counts: Mapping[str, int]) -> str:
    whole = sum(counts.values())
    return ", ".join(f"{name} {count} ({count / whole:.0%})" for name, count in counts.items()) or "-"


def summary_table(summary: Summary) -> Table:
    """A run, for people."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    verdicts = {name: summary.verdicts.get(name, 0) for name in ("ok", "invalid", "incomplete", "error")}
    rate = summary.posts / summary.wall_s if summary.wall_s > 0 else 0.0
    table.add_row("posts", f"{summary.posts} in {summary.wall_s:.1f} s ({rate:.2f} a second)")
    table.add_row(
        "verdicts",
        Text(
            ", ".join(f"{name} {count}" for name, count in verdicts.items()),
            style="green" if summary.is_good else "red",
        ),
    )
    if summary.reasons:
        table.add_row("reasons", Text(", ".join(f"{name} {n}" for name, n in summary.reasons.items()), style="red"))
    table.add_row("first field", _show_spread(summary.first_field_ms))
    table.add_row("whole answer", _show_spread(summary.total_ms))
    table.add_row("tiers", _show_shares(summary.tiers))
    table.add_row("cache", f"{summary.cache_hits} hits; {_show_shares(summary.cache)}")
    if summary.degraded:
        table.add_row("degraded", Text(str(summary.degraded), style="red"))
    table.add_row(
        "frames",
        f"{summary.frames_sent} sent, {summary.frames_received} received, {summary.frames_verified} verified"
        f", {summary.frames_lost} lost",
    )
    table.add_row("tokens", f"{summary.input_tokens} in, {summary.output_tokens} out")
    return table


def honesty(models: Sequence[str]) -> str:
    """What the answers of the demo model are worth; empty for other models."""
    if not any("135m" in model.lower() for model in models):
        return ""
    return (
        "The model is a demo of 135 million parameters: the structure of these answers is real, their judgements "
        "are not. To point the mesh at a model of your own: ssop models add FILE.gguf --tier full, then ssop up; or "
        "name it in a copy of the state directory's ssop.toml and start that with: ssop up --config COPY."
    )


def write_results(path: Path, outcomes: Sequence[Outcome], posts: Sequence[Post]) -> None:
    """Write one JSON line a post. Raises CommandError."""
    by_id = {post.id: post for post in posts}
    try:
        with path.open("w", encoding="utf-8") as file:
            for outcome in outcomes:
                line = outcome_json(outcome) | {"lang": by_id[outcome.post_id].lang}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    except OSError as error:
        raise CommandError(f"{path} can't be written: {error.strerror}", exit_code=EXIT_USAGE) from error


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON."""
    return {
        "id": outcome.post_id,
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "first_field_ms": outcome.first_field_ms,
        "total_ms": outcome.total_ms,
        "tier": outcome.tier,
        "model": outcome.model,
        "cache": outcome.cache,
        "degraded_level": outcome.degraded_level,
        "frames_sent": outcome.frames_sent,
        "frames_received": outcome.frames_received,
        "frames_verified": outcome.frames_verified,
        "input_tokens": outcome.input_tokens,
        "output_tokens": outcome.output_tokens,
        "analysis": outcome.fields,
    }
