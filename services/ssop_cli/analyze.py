"""`ssop analyze`: every post of a file through the mesh, with fields shown as they arrive."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ssop_cli.board import show_ms
from ssop_cli.failure import EXIT_NO_MESH, EXIT_USAGE, CommandError
from ssop_cli.mesh import Access, cache_name, explain, tier_name
from ssop_cli.post_board import PostBoard, Progress
from ssop_cli.posts import Asker, Post
from ssop_cli.summary import Outcome, Spread, Summary, summarise
from ssop_sdk import AsyncSsopClient, OutputIncomplete, OutputInvalid, SsopError

MAX_OUTPUT_TOKENS: Final = 768


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """What to do. `timeout_s` is for one post."""

    batch_size: int
    timeout_s: float
    policy: str
    model: str
    schema: Mapping[str, Any]
    asker: Asker


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
    board = PostBoard(console, posts, len(options.schema.get("properties", {})), is_quiet=is_quiet)
    started_s = time.monotonic()
    with board:
        outcomes = asyncio.run(analyze_posts(posts, access, options, changed=board.update))
    return outcomes, summarise(outcomes, time.monotonic() - started_s)


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
    """Write one JSON line a post, in their order, which is that of the outcomes. Raises CommandError."""
    try:
        with path.open("w", encoding="utf-8") as file:
            for outcome, post in zip(outcomes, posts, strict=True):
                line = outcome_json(outcome) | {"lang": post.lang}
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
