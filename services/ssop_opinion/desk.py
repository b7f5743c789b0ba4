"""The desk: judges posts by their tenants' rules while their fields arrive, keeps alerts, and has people told.

Of the processes that share a state folder one judges, by a lock on a file; the others leave facts for it, and one of
them takes over where it dies. What a record causes is on disk before `record_stored` returns, so that a post which is
acknowledged has been judged; what was not is judged again, and makes alerts and messages with the same ids.
"""

import asyncio
import fcntl
import logging
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from ssop_opinion.alert_metrics import AlertMetrics
from ssop_opinion.alert_store import Acknowledgement, AlertStore
from ssop_opinion.core.alert_book import AlertBook, Changes
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.alerts import Alert, AlertError, Notice
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Record
from ssop_opinion.core.rules import Facts, facts_of_fields, facts_of_record
from ssop_opinion.courier import Courier
from ssop_opinion.feed import Feed

_log = logging.getLogger(__name__)
STORE_NAME: Final = "alerts.db"
LOCK_NAME: Final = "alerts.lock"
MAX_PARTIAL: Final = 10_000
"""Posts whose answers are arriving; beyond it the oldest is judged by its record alone."""
TICK_S: Final = 0.25
RETRY_S: Final = 1.0
_PRUNE_MS: Final = 3_600_000
_INBOX: Final = 2_000
T = TypeVar("T")


class Desk:
    """See ports.AlertDesk, and what the page and commands ask. `now_ms` is the wall clock."""

    def __init__(
        self,
        policies: Mapping[str, AlertPolicy],
        folder: Path,
        registry: CollectorRegistry,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.feed = Feed()
        self.couriers: list[Courier] = []
        self._policies = dict(policies)
        self._folder = folder
        self._now_ms = now_ms
        self._metrics = AlertMetrics(registry)
        self._books: dict[str, AlertBook] = {}
        self._needed = _needs(policies)
        self._partial: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="alerts")
        self._store: AlertStore | None = None
        self._lock: int | None = None
        self._notices: list[Notice] = []
        self._outward: list[tuple[Facts, int]] = []
        self._read: list[int] = []
        self._heard: list[str] = []
        self._woken = asyncio.Event()
        self._waiting: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None
        self._pruned_ms = 0
        self._fault: BaseException | None = None

    @property
    def is_well(self) -> bool:
        """False when a fault of the program has ended the judging."""
        return self._fault is None

    @property
    def is_judge(self) -> bool:
        """Whether this process is the one that judges."""
        return self._lock is not None

    def field_arrived(self, post: Post, name: str, value: Any, now_ms: int) -> None:
        """See AlertDesk."""
        key = post.key
        self.feed.field(post, key, name, value, now_ms)
        needed = self._needed.get(post.tenant)
        if needed is None:
            return
        fields = self._partial.get(key)
        if fields is None:
            fields = self._partial[key] = {}
            if len(self._partial) > MAX_PARTIAL:
                self._partial.popitem(last=False)
        else:
            self._partial.move_to_end(key)
            if name in fields:
                # A second analysis of the post: what the first one said is void.
                fields.clear()
        fields[name] = value
        # Only a field that completes what some rule needs can change anything.
        for need in needed:
            if name in need and fields.keys() >= need:
                self._judge(facts_of_fields(post, fields), now_ms, name)
                break

    async def record_stored(self, record: Record, now_ms: int) -> None:
        """See AlertDesk. Returns when what follows is on disk."""
        self.feed.record(record)
        self._partial.pop(record.key, None)
        if record.post.tenant not in self._policies:
            return
        if self._judge(facts_of_record(record), now_ms):
            await self._flushed()

    async def alerts(self, tenant: str, *, limit: int, until_ms: int | None = None, since_ms: int = 0) -> list[Alert]:
        """A tenant's alerts, the newest first."""
        return await self.on_store(
            lambda store: store.alerts(tenant, limit=limit, until_ms=until_ms, since_ms=since_ms)
        )

    async def deliveries(self, tenant: str) -> list[dict[str, Any]]:
        """How a tenant's channels are, and what became of its messages."""
        found = {one["channel"]: one for one in await self.on_store(lambda store: store.deliveries(tenant))}
        policy = self._policies.get(tenant)
        named = {route.channel for route in policy.routes} if policy is not None else set()
        for courier in self.couriers:
            if courier.channel in named:
                one = found.setdefault(
                    courier.channel, {"channel": courier.channel, "pending": 0, "sent": 0, "failed": 0, "dropped": 0}
                )
                health = courier.health
                one |= {"fault": health.fault, "since_ms": health.since_ms, "is_broken": health.is_broken}
        return [found[name] for name in sorted(found)]

    async def acknowledge(self, tenant: str, alert_id: str, by: str) -> Alert:
        """Somebody of the tenant has seen an alert. Raises AlertError for one that is not open."""
        now_ms = self._now_ms()
        if self.is_judge and tenant in self._books:
            alert = self._books[tenant].acknowledge(alert_id, by, now_ms)
            await self._flushed()
            self.feed.tell(tenant, {"type": "alert", "event": "acknowledged", "id": alert_id})
            return alert
        found = await self.on_store(lambda store: store.alert(tenant, alert_id))
        if found is None or not found.is_open:
            raise AlertError("no open alert has this id")
        one = Acknowledgement(alert_id, tenant, by, now_ms)
        await self.on_store(lambda store: store.ask_acknowledgement(one))
        return found

    def count_message(self, channel: str, outcome: str, number: int) -> None:
        """Something became of messages."""
        self._metrics.messages.labels(channel, outcome).inc(number)

    def on_store(self, function: Callable[[AlertStore], T]) -> Awaitable[T]:
        """See courier.OnStore."""
        store = self._store
        if store is None:
            raise sqlite3.ProgrammingError("the desk is closed")
        return asyncio.get_running_loop().run_in_executor(self._thread, function, store)

    async def open(self) -> None:
        """Open the store, and judge where nobody else does. Raises OSError and sqlite3.Error."""
        loop = asyncio.get_running_loop()
        self._store = await loop.run_in_executor(self._thread, AlertStore, self._folder / STORE_NAME)
        await self._try_to_lead()

    async def close(self) -> None:
        """Let go of the store, after what waits to be kept."""
        if self._store is not None:
            with suppress(sqlite3.Error):
                await self._commit()
                if self._next is not None:
                    self._next.set_result(None)
                    self._next = None
            self._disappoint()
            await self.on_store(AlertStore.close)
            self._store = None
        self._thread.shutdown()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def run(self) -> None:
        """Keep what changes, and do what time brings, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep())
                group.create_task(self._watch_time())
                for courier in self.couriers:
                    group.create_task(courier.run())
        except Exception as error:
            # Posts must not be acknowledged as judged when nobody judges.
            _log.critical("the desk has stopped", exc_info=True)
            self._fault = error
            self._metrics.is_judge.set(0)
            self._disappoint()
            raise

    def _disappoint(self) -> None:
        """Tell those who wait for the disk that nothing will come of it."""
        for future in (self._waiting, self._next):
            if future is not None and not future.done():
                future.set_exception(RuntimeError("the desk has stopped"))
        self._waiting = self._next = None

    def _judge(self, facts: Facts, now_ms: int, arrived: str = "") -> bool:
        """Whether there is something to keep."""
        if not self.is_judge:
            # Of a post whose answer still arrives, others judge once it is there: a file carries no haste.
            if not facts.is_final:
                return False
            self._outward.append((facts, now_ms))
            self._woken.set()
            return True
        book = self._books[facts.tenant]
        self._note(book.judge(facts, now_ms, arrived), facts.received_ms)
        if book.is_changed:
            self._woken.set()
        return book.is_changed

    def _note(self, notices: Sequence[Notice], received_ms: int | None = None) -> None:
        for notice in notices:
            self._notices.append(notice)
            self._metrics.events.labels(notice.event, notice.alert.severity).inc()
            if notice.event == "opened" and received_ms is not None:
                self._metrics.lead_s.observe(max(0, notice.at_ms - received_ms) / 1_000)
            self.feed.tell(notice.alert.tenant, {"type": "alert", "event": notice.event, "id": notice.alert.id})
        if notices:
            self._woken.set()

    async def _flushed(self) -> None:
        """Return when everything up to now is on disk."""
        if self._fault is not None:
            raise RuntimeError("the desk has stopped") from self._fault
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        self._woken.set()
        await asyncio.shield(self._next)

    async def _keep(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            self._waiting, self._next = self._next, None
            while True:
                try:
                    await self._commit()
                except sqlite3.Error:
                    # Nothing is acknowledged meanwhile; the state waits in memory, where it is bounded.
                    self._metrics.unsaved.inc()
                    _log.exception("alerts can't be kept")
                    await asyncio.sleep(RETRY_S)
                else:
                    break
            if self._waiting is not None:
                self._waiting.set_result(None)
                self._waiting = None
            for courier in self.couriers:
                courier.wake()

    async def _commit(self) -> None:
        changes = {tenant: book.take_changes() for tenant, book in self._books.items() if book.is_changed}
        notices, self._notices = self._notices, []
        read, self._read = self._read, []
        heard, self._heard = self._heard, []
        outward, self._outward = self._outward, []
        try:
            if outward:
                await self.on_store(lambda store: store.hand_over(outward))
                outward = []
            if changes or notices or read or heard:
                await self.on_store(lambda store: store.commit(changes, notices, self._policies, read, heard))
        except sqlite3.Error:
            self._take_back(changes)
            self._notices = notices + self._notices
            self._read, self._heard = read + self._read, heard + self._heard
            self._outward = outward + self._outward
            raise

    def _take_back(self, changes: Mapping[str, Changes]) -> None:
        for tenant, change in changes.items():
            self._books[tenant].take_back(change)

    async def _watch_time(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await (self._tick() if self.is_judge else self._try_to_lead())
            except (sqlite3.Error, OSError):
                self._metrics.unsaved.inc()
                _log.exception("the desk can't read its store")
                await asyncio.sleep(RETRY_S)

    async def _tick(self) -> None:
        inbox, acknowledgements = await self.on_store(
            lambda store: (store.handed_over(_INBOX), store.acknowledgements())
        )
        is_read = frozenset(self._read)
        for seq, facts, came_ms in inbox:
            if facts.tenant in self._books and seq not in is_read:
                self._judge(facts, came_ms)
            self._read.append(seq)
        for one in acknowledgements:
            with suppress(AlertError):
                if one.tenant in self._books:
                    self._books[one.tenant].acknowledge(one.alert_id, one.by, one.at_ms)
            self._heard.append(one.alert_id)
        now_ms = self._now_ms()
        for book in self._books.values():
            self._note(book.tick(now_ms))
        if inbox or acknowledgements:
            await self._flushed()
        if now_ms - self._pruned_ms > _PRUNE_MS:
            self._pruned_ms = now_ms
            await self.on_store(lambda store: store.prune(now_ms))
        self._measure()

    def _measure(self) -> None:
        self._metrics.open.set(sum(len(list(book.open_alerts)) for book in self._books.values()))
        self._metrics.forgotten.set(sum(book.windows.forgotten for book in self._books.values()))
        for courier in self.couriers:
            self._metrics.broken.labels(courier.channel).set(courier.health.is_broken)

    async def admit(self, policies: Mapping[str, AlertPolicy]) -> Callable[[], None]:
        """See wiring.Admit."""
        books = await self._open_books(policies, self._now_ms())

        def let_in() -> None:
            self._policies = {**self._policies, **policies}
            self._needed = {**self._needed, **_needs(policies)}
            if self.is_judge:
                self._books = {**self._books, **books}

        return let_in

    async def _open_books(self, policies: Mapping[str, AlertPolicy], now_ms: int) -> dict[str, AlertBook]:
        """Books of tenants, with what the store has of them."""
        books: dict[str, AlertBook] = {}
        for tenant, policy in policies.items():
            alerts, groups = await self.on_store(lambda store, tenant=tenant: store.load(tenant))  # type: ignore[misc]
            books[tenant] = AlertBook(tenant, policy)
            books[tenant].restore(alerts, groups, now_ms)
        return books

    async def _try_to_lead(self) -> None:
        lock = os.open(self._folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return
        now_ms = self._now_ms()
        books: dict[str, AlertBook] = {}
        try:
            # Tenants may come while others' are read.
            while missing := self._policies.keys() - books.keys():
                books |= await self._open_books({tenant: self._policies[tenant] for tenant in missing}, now_ms)
        except BaseException:
            os.close(lock)
            raise
        self._books, self._lock = books, lock
        self._metrics.is_judge.set(1)
        _log.info("this process judges alerts", extra={"tenants": len(books)})


def _needs(policies: Mapping[str, AlertPolicy]) -> dict[str, tuple[frozenset[str], ...]]:
    """The sets of fields that rules of each tenant need."""
    return {tenant: tuple({rule.needed for rule in policy.rules}) for tenant, policy in policies.items()}
