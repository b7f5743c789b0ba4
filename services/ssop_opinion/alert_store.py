"""Alerts on disk: what a desk needs to go on after a kill, and what waits to be told. SQLite, one thread.

A message is written in the transaction that writes what it tells of, and marked when its receiver has taken it: it is
sent at least once. Its id is the same each time.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ssop_opinion.core.alert_book import Changes
from ssop_opinion.core.alert_policy import AlertPolicy, EventKind
from ssop_opinion.core.alerts import Alert, Notice
from ssop_opinion.core.rules import SEVERITIES, Facts
from ssop_opinion.core.windows import Entry, Place

MAX_PENDING: Final = 1_000
"""Messages that wait for a channel; beyond it the oldest of the least severity are dropped, and counted."""
MAX_INBOX: Final = 20_000
KEEP_SENT_MS: Final = 7 * 86_400_000
KEEP_ALERTS_MS: Final = 400 * 86_400_000
_BUSY_S: Final = 5.0
State = Literal["pending", "sent", "failed", "dropped", "cancelled"]
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS alerts (
  id TEXT PRIMARY KEY, tenant TEXT NOT NULL, opened_ms INTEGER NOT NULL, is_open INTEGER NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alerts_of_tenant ON alerts (tenant, opened_ms);
CREATE TABLE IF NOT EXISTS groups (
  tenant TEXT NOT NULL, rule TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, rule, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
  id TEXT PRIMARY KEY, channel TEXT NOT NULL, tenant TEXT NOT NULL, alert TEXT NOT NULL, event TEXT NOT NULL,
  rank INTEGER NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0, created_ms INTEGER NOT NULL,
  due_ms INTEGER NOT NULL, body TEXT NOT NULL, reason TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS outbox_pending ON outbox (channel, due_ms) WHERE state = 'pending';
CREATE TABLE IF NOT EXISTS counts (
  tenant TEXT NOT NULL, channel TEXT NOT NULL, state TEXT NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY (tenant, channel, state)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS acknowledgements (
  id TEXT PRIMARY KEY, tenant TEXT NOT NULL, who TEXT NOT NULL, at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inbox (seq INTEGER PRIMARY KEY, now_ms INTEGER NOT NULL, body TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Message:
    """Something that waits to be told on a channel. `tries` counts those that were begun; times are Unix ms."""

    id: str
    channel: str
    tenant: str
    notice: Notice
    tries: int
    created_ms: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Somebody has seen an alert; the desk has yet to hear of it."""

    alert_id: str
    tenant: str
    by: str
    at_ms: int


class AlertStore:
    """The file. Not thread-safe: its owner calls it from one thread. Raises sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self._db.execute("PRAGMA journal_mode = WAL")
        # A message that the receiver has not got must not be lost with the power.
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def load(self, tenant: str) -> tuple[list[Alert], list[tuple[Place, list[Entry]]]]:
        """What a tenant's book goes on from: open alerts, and groups of posts."""
        alerts = self._db.execute("SELECT body FROM alerts WHERE tenant = ? AND is_open", (tenant,))
        groups = self._db.execute("SELECT rule, name, body FROM groups WHERE tenant = ?", (tenant,))
        return (
            [read_alert(json.loads(body)) for (body,) in alerts],
            [((rule, name), [Entry(*one) for one in json.loads(body)]) for rule, name, body in groups],
        )

    def commit(
        self,
        changes: Mapping[str, Changes],
        notices: Iterable[Notice],
        policies: Mapping[str, AlertPolicy],
        read: Sequence[int] = (),
        heard: Sequence[str] = (),
    ) -> None:
        """Keep what changed, by tenant, and queue what is to be told; forget what others left. All or nothing."""
        with self._transaction():
            for tenant, change in changes.items():
                self._keep(tenant, change)
            for notice in notices:
                self._queue(notice, policies[notice.alert.tenant])
            self._db.executemany("DELETE FROM inbox WHERE seq = ?", [(seq,) for seq in read])
            self._db.executemany("DELETE FROM acknowledgements WHERE id = ?", [(one,) for one in heard])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # An error such as a full disk may have ended the transaction already.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _keep(self, tenant: str, change: Changes) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?)",
            [(one.id, tenant, one.opened_ms, one.is_open, _text(asdict(one))) for one in change.alerts.values()],
        )
        gone = [(tenant, *place) for place, entries in change.groups.items() if not entries]
        kept = [(tenant, *place, _text(entries)) for place, entries in change.groups.items() if entries]
        self._db.executemany("DELETE FROM groups WHERE tenant = ? AND rule = ? AND name = ?", gone)
        self._db.executemany("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?)", kept)

    def _queue(self, notice: Notice, policy: AlertPolicy) -> None:
        alert = notice.alert
        due_ms = policy.due_ms(alert.severity, notice.at_ms)
        # A summary stands for alerts from anywhere.
        place = (alert.region, alert.product_line) if alert.kind == "alert" else None
        body = _text({"alert": asdict(alert), "event": notice.event, "at_ms": notice.at_ms})
        for channel in dict.fromkeys(
            route.channel
            for route in policy.routes
            if route.takes(alert.severity, place, notice.event, alert.escalations)
        ):
            # Who has not heard of an alert need not hear that it was none.
            is_unheard = notice.event == "withdrawn" and self._cancel(alert.id, channel)
            state: State = "cancelled" if is_unheard else "pending"
            row = (
                f"{notice.id}@{channel}", channel, alert.tenant, alert.id, notice.event,
                SEVERITIES.index(alert.severity), state, 0, notice.at_ms, due_ms, body, "",
            )  # fmt: skip
            self._db.execute("INSERT OR IGNORE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._bound(channel)

    def _cancel(self, alert_id: str, channel: str) -> bool:
        gone = self._db.execute(
            "UPDATE outbox SET state = 'cancelled' WHERE alert = ? AND channel = ? AND state = 'pending' AND tries = 0"
            " RETURNING event",
            (alert_id, channel),
        ).fetchall()
        return ("opened",) in gone

    def _bound(self, channel: str) -> None:
        (waiting,) = self._db.execute(
            "SELECT count(*) FROM outbox WHERE channel = ? AND state = 'pending'", (channel,)
        ).fetchone()
        if waiting > MAX_PENDING:
            rows = self._db.execute(
                "SELECT id FROM outbox WHERE channel = ? AND state = 'pending' ORDER BY rank, created_ms LIMIT ?",
                (channel, waiting - MAX_PENDING),
            ).fetchall()
            self._mark([one for (one,) in rows], "dropped", "QUEUE_FULL")

    def due(self, channel: str, now_ms: int, limit: int) -> list[Message]:
        """Messages that may be sent now, the gravest first."""
        rows = self._db.execute(
            "SELECT id, channel, tenant, body, tries, created_ms, due_ms FROM outbox"
            " WHERE channel = ? AND state = 'pending' AND due_ms <= ? ORDER BY rank DESC, created_ms, id LIMIT ?",
            (channel, now_ms, limit),
        )
        return [
            Message(one, channel, tenant, _read_notice(json.loads(body)), tries, created_ms, due_ms)
            for one, channel, tenant, body, tries, created_ms, due_ms in rows
        ]

    def next_due_ms(self, channel: str) -> int | None:
        """When the next message may be sent; None while none waits."""
        found = self._db.execute(
            "SELECT min(due_ms) FROM outbox WHERE channel = ? AND state = 'pending'", (channel,)
        ).fetchone()
        return None if found[0] is None else int(found[0])

    def begin(self, ids: Sequence[str]) -> None:
        """Note that messages are about to be sent."""
        # Must outlive the process. If the power goes too, a withdrawal may be thought unneeded; no message is lost.
        self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            with self._transaction():
                self._db.executemany("UPDATE outbox SET tries = tries + 1 WHERE id = ?", [(one,) for one in ids])
        finally:
            self._db.execute("PRAGMA synchronous = FULL")

    def end(self, ids: Sequence[str], state: State, reason: str = "") -> None:
        """Note what became of messages, in one transaction."""
        with self._transaction():
            self._mark(ids, state, reason)

    def _mark(self, ids: Sequence[str], state: State, reason: str) -> None:
        for one in ids:
            found = self._db.execute(
                "UPDATE outbox SET state = ?, reason = ? WHERE id = ? AND state = 'pending' RETURNING tenant, channel",
                (state, reason, one),
            ).fetchone()
            if found is not None:
                self._db.execute(
                    "INSERT INTO counts VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET n = n + 1", (*found, state)
                )

    def deliveries(self, tenant: str) -> list[dict[str, Any]]:
        """By channel: how many of a tenant's messages wait, were sent, failed or were dropped since the beginning."""
        found: dict[str, dict[str, Any]] = {}
        counts = self._db.execute("SELECT channel, state, n FROM counts WHERE tenant = ?", (tenant,))
        waiting = self._db.execute(
            "SELECT channel, state, count(*) FROM outbox WHERE tenant = ? AND state = 'pending' GROUP BY channel",
            (tenant,),
        )
        for channel, state, n in (*counts, *waiting):
            one = found.setdefault(channel, {"channel": channel, "pending": 0, "sent": 0, "failed": 0, "dropped": 0})
            one[state] = n
        return [found[name] for name in sorted(found)]

    def alerts(self, tenant: str, *, limit: int, until_ms: int | None = None, since_ms: int = 0) -> list[Alert]:
        """A tenant's alerts, the newest first; opened from `since_ms` on and before `until_ms`."""
        rows = self._db.execute(
            "SELECT body FROM alerts WHERE tenant = ? AND opened_ms >= ? AND opened_ms < ? ORDER BY opened_ms DESC, id"
            " LIMIT ?",
            (tenant, since_ms, until_ms if until_ms is not None else 1 << 62, limit),
        )
        return [read_alert(json.loads(body)) for (body,) in rows]

    def alert(self, tenant: str, alert_id: str) -> Alert | None:
        """One alert of a tenant."""
        row = self._db.execute("SELECT body FROM alerts WHERE tenant = ? AND id = ?", (tenant, alert_id)).fetchone()
        return None if row is None else read_alert(json.loads(row[0]))

    def ask_acknowledgement(self, one: Acknowledgement) -> None:
        """Leave word for the desk that somebody has seen an alert; the first counts."""
        self._db.execute(
            "INSERT OR IGNORE INTO acknowledgements VALUES (?, ?, ?, ?)", (one.alert_id, one.tenant, one.by, one.at_ms)
        )

    def acknowledgements(self) -> list[Acknowledgement]:
        """Of which the desk has yet to hear."""
        return [
            Acknowledgement(*row) for row in self._db.execute("SELECT id, tenant, who, at_ms FROM acknowledgements")
        ]

    def hand_over(self, facts: Sequence[tuple[Facts, int]]) -> None:
        """Leave facts for the process that judges, with when they came. Raises sqlite3.Error, also when full."""
        (waiting,) = self._db.execute("SELECT count(*) FROM inbox").fetchone()
        if waiting + len(facts) > MAX_INBOX:
            raise sqlite3.OperationalError("too many facts wait for the process that judges alerts")
        rows = [(now_ms, _text(asdict(one))) for one, now_ms in facts]
        with self._transaction():
            self._db.executemany("INSERT INTO inbox (now_ms, body) VALUES (?, ?)", rows)

    def handed_over(self, limit: int) -> list[tuple[int, Facts, int]]:
        """What other processes left, oldest first: number, facts, and when they came. `commit` forgets them."""
        rows = self._db.execute("SELECT seq, body, now_ms FROM inbox ORDER BY seq LIMIT ?", (limit,))
        return [(seq, Facts(**json.loads(body)), now_ms) for seq, body, now_ms in rows]

    def prune(self, now_ms: int) -> None:
        """Forget messages and alerts that are long over."""
        self._db.execute("DELETE FROM outbox WHERE state != 'pending' AND created_ms < ?", (now_ms - KEEP_SENT_MS,))
        self._db.execute("DELETE FROM alerts WHERE NOT is_open AND opened_ms < ?", (now_ms - KEEP_ALERTS_MS,))


def read_alerts(path: Path, tenants: Sequence[str], since_ms: int, until_ms: int, limit: int = 100_000) -> list[Alert]:
    """Alerts in a file that a desk may have open, the oldest first. Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_BUSY_S)) as db:
        rows = db.execute(
            "SELECT body FROM alerts WHERE opened_ms >= ? AND opened_ms < ? ORDER BY opened_ms, id LIMIT ?",
            (since_ms, until_ms, limit),
        ).fetchall()
    return [one for one in (read_alert(json.loads(body)) for (body,) in rows) if one.tenant in tenants]


def read_alert(document: Mapping[str, Any]) -> Alert:
    """The alert of a JSON object that `asdict` made."""
    places = tuple((rule, group) for rule, group in document["places"])
    return Alert(**{**document, "keys": tuple(document["keys"]), "places": places})


def _read_notice(document: Mapping[str, Any]) -> Notice:
    event: EventKind = document["event"]
    return Notice(read_alert(document["alert"]), event, document["at_ms"])


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str)
