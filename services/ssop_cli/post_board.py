"""Posts on a terminal while they are analysed: the first field by field, then a line each."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ssop_cli.board import can_redraw, show_ms
from ssop_cli.posts import Post
from ssop_cli.summary import Outcome

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


class Showcase:
    """One post, shown field by field; over when it has ended. None: it is over. Others may have its id."""

    def __init__(self, console: Console, post: Post | None) -> None:
        self.is_over = post is None
        self._console = console
        self._post = post
        self._shown = 0

    def update(self, progress: Progress) -> None:
        """Take what has changed about a post."""
        if self.is_over or progress.post is not self._post:
            return
        fields = list(progress.fields.items())
        if fields and not self._shown:
            self._print(Text(_one_line(f"{progress.post.id}: {progress.post.text}")))
        for name, value in fields[self._shown :]:
            arrived = show_ms((time.monotonic() - progress.started_s) * 1000)
            shown = _one_line(json.dumps(value, ensure_ascii=False))
            self._print(Text.assemble((f"{arrived:>9}  ", "dim"), f"{_one_line(name):<18}", shown))
        self._shown = len(fields)
        self.is_over = progress.outcome is not None

    def _print(self, line: Text) -> None:
        self._console.print(line, no_wrap=True, overflow="ellipsis")


class PostBoard:
    """The posts on the terminal."""

    def __init__(self, console: Console, posts: Sequence[Post], fields: int, *, is_quiet: bool) -> None:
        self._console = console
        self._count = len(posts)
        self._fields = fields
        self._is_quiet = is_quiet
        self._is_live = can_redraw(console) and not is_quiet
        self._running: dict[int, Progress] = {}
        self._done = 0
        self._showcase = Showcase(console, posts[0] if posts else None)
        self._held: list[Progress] = []
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> None:
        if not self._is_quiet:
            whole = f"{self._count} posts" if self._count != 1 else "1 post"
            self._console.print(f"{whole}; the first with each of its {self._fields} fields as the model completes it:")
        if self._is_live:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()
        # Whoever interrupts the first post wants to see the others that are done.
        if self._held:
            self._show_held(has_header=True)

    def update(self, progress: Progress) -> None:
        """Take what has changed about a post."""
        self._running[id(progress)] = progress
        if progress.outcome is not None:
            del self._running[id(progress)]
            self._done += 1
        if self._is_quiet:
            return
        if progress.outcome is not None:
            self._held.append(progress)
        was_over = self._showcase.is_over
        self._showcase.update(progress)
        if self._showcase.is_over:
            self._show_held(has_header=not was_over)

    def _show_held(self, *, has_header: bool) -> None:
        if has_header:
            self._console.print(Text(), self._table([], has_header=True))
        for done in self._held:
            self._console.print(self._table([done], has_header=False))
        self._held.clear()

    def _render(self) -> Group:
        running = list(self._running.values())
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
        yield Text(_one_line(row.post.id))
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
            yield Text(_one_line(outcome.reason), style="red")
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
        text.append(f"{_one_line(name)}=", style="dim").append(f"{_show(fields[name])} ")
    return text


def _show(value: Any) -> str:
    return _one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _one_line(text: str) -> str:
    """Ids, names and values are strangers': nothing of them moves the cursor or sets a title."""
    return "".join(char if char.isprintable() else " " for char in text)
