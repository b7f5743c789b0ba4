"""`ssop rag warm`: sends the queries of a log again, slowly, before they come by themselves; `ssop rag usage`.

A line of the log is a JSON object with `query` (text), or with `messages` as in chat completions, whose last user
message is the query. `collections` names where to look; with `--answers`, `model`, `output_schema`, `policy` and
`max_output_tokens` are used too. Other keys are ignored, so that a log of requests can be given as it is.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from ssop_cli.failure import EXIT_USAGE, CommandError, cause_of
from ssop_sdk import AuthenticationError, SsopError, Unavailable

if TYPE_CHECKING:
    from ssop.v1.rag_pb2 import GetPrefetchUsageResponse
    from ssop_sdk import SsopClient

MAX_QUERY_CHARS: Final = 20_000
_MAX_LINES: Final = 1_000_000
_GENERATE_KEYS: Final = ("model", "output_schema", "policy", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class Entry:
    """A query that was asked, where, and how the answer to it is asked for."""

    query: str
    collections: tuple[str, ...]
    prompt: Any
    options: Mapping[str, Any]


@dataclass(slots=True)
class Warmed:
    """What became of the lines."""

    lines: int = 0
    embedded: int = 0
    known: int = 0
    answered: int = 0
    failed: int = 0
    first_failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "lines": self.lines,
            "embedded": self.embedded,
            "known": self.known,
            "answered": self.answered,
            "failed": self.failed,
            "first_failure": self.first_failure,
        }


def read_log(path: Path, limit: int | None) -> list[Entry]:
    """The different entries of a log, the most frequent first; at most `limit`. Raises CommandError at a bad line."""
    counts: Counter[str] = Counter()
    entries: dict[str, Entry] = {}
    for number, line in enumerate(_lines(path), start=1):
        if number > _MAX_LINES:
            raise CommandError(f"{path} has more than {_MAX_LINES} lines", exit_code=EXIT_USAGE)
        if not line.strip():
            continue
        try:
            entry = _read_line(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise CommandError(f"{path}, line {number}: {error}", exit_code=EXIT_USAGE) from error
        name = json.dumps([entry.query, entry.collections, entry.prompt, dict(entry.options)], sort_keys=True)
        counts[name] += 1
        entries.setdefault(name, entry)
    return [entries[name] for name, _ in counts.most_common(limit)]


def _lines(path: Path) -> Iterable[str]:
    if str(path) == "-":
        yield from sys.stdin
        return
    try:
        with path.open(encoding="utf-8") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} can't be read: {cause_of(error)}", exit_code=EXIT_USAGE) from error


def _read_line(record: Any) -> Entry:
    if not isinstance(record, dict):
        raise TypeError("a line must be a JSON object")
    messages = record.get("messages")
    query = record.get("query")
    if query is None and isinstance(messages, list):
        said = [one.get("content") for one in messages if isinstance(one, dict) and one.get("role") == "user"]
        query = said[-1] if said else None
    if not isinstance(query, str) or not query.strip():
        raise ValueError("neither 'query' nor 'messages' holds a text")
    if len(query) > MAX_QUERY_CHARS:
        raise ValueError(f"the query has more than {MAX_QUERY_CHARS} characters")
    collections = record.get("collections") or ()
    if not isinstance(collections, list | tuple) or not all(isinstance(name, str) for name in collections):
        raise TypeError("'collections' must be a list of names")
    options = {key: record[key] for key in _GENERATE_KEYS if record.get(key) is not None}
    return Entry(query, tuple(collections), messages if isinstance(messages, list) else query, options)


def warm_up(
    client: "SsopClient",
    entries: Sequence[Entry],
    *,
    collections: Sequence[str],
    rate: float,
    has_answers: bool,
    clock_s: Callable[[], float] = time.monotonic,
    sleep_s: Callable[[float], None] = time.sleep,
) -> Warmed:
    """Send the entries one after the other, at most `rate` a second. A line that fails is counted, not fatal."""
    done = Warmed()
    started_s = clock_s()
    for number, entry in enumerate(entries):
        sleep_s(max(0.0, started_s + number / rate - clock_s()))
        done.lines += 1
        where = list(entry.collections or collections)
        try:
            warmed = client.index.warm([entry.query], where)
            done.embedded += warmed.embedded
            done.known += warmed.known
            if has_answers:
                client.generate(entry.prompt, collections=where, **entry.options).result()
                done.answered += 1
        except AuthenticationError:
            raise
        except SsopError as error:
            if isinstance(error, Unavailable) and not error.from_mesh:
                raise
            done.failed += 1
            done.first_failure = done.first_failure or error.reason
    return done


def usage_json(usage: "GetPrefetchUsageResponse") -> dict[str, Any]:
    """Every field, zeros too."""
    return {field.name: getattr(usage, field.name) for field in usage.DESCRIPTOR.fields}


def usage_table(usage: "GetPrefetchUsageResponse") -> Table:
    """For people."""
    table = Table(show_header=False, box=None)
    ended = usage.hits + usage.wasted
    left = f"{usage.budget_left} of {usage.budget} left in {usage.window_ms / 1000:g} s"
    rows = {
        "started": f"{usage.started}",
        "used": f"{usage.hits}" + (f" ({usage.hits / ended:.0%})" if ended else ""),
        "wasted": f"{usage.wasted}",
        "not started": f"{usage.shed}",
        "tokens embedded": f"{usage.tokens}",
        "candidates fetched": f"{usage.candidates}",
        "saved": f"{usage.saved_ms} ms of waiting",
        "spent in vain": f"{usage.wasted_ms} ms of work",
        "budget": left if usage.budget else "none",
        "state": f"off, tried again in {usage.probe_in_ms / 1000:.0f} s" if usage.is_off else "on",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
