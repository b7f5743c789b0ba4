"""One channel's messages: rate, merging, waiting, giving up, and what is dropped."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helpers.opinion_posts import START_MS, TENANT, make_facts
from ssop_opinion.alert_store import MAX_PENDING, AlertStore, Message
from ssop_opinion.core.alert_book import AlertBook
from ssop_opinion.core.alert_policy import AlertPolicy, QuietHours, Route
from ssop_opinion.core.pacing import FIRST_WAIT_MS, MOST_WAIT_MS, Bucket, back_off_ms
from ssop_opinion.core.rules import DEFAULT_RULES, Rule
from ssop_opinion.courier import BROKEN_WAIT_MS, Courier
from ssop_opinion.notifiers.notifier import BrokenError, LaterError, RefusedError, TellError

MINUTE_MS = 60_000


class Robot:
    """Notes what it is told, and fails as it is bidden."""

    def __init__(self, most: int = 50) -> None:
        self.most = most
        self.told: list[tuple[int, list[str]]] = []
        self.faults: list[TellError | None] = []

    async def tell(self, messages: Sequence[Message], now_ms: int) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        self.told.append((now_ms, [one.id for one in messages]))


class Office:
    """A store, a robot and its courier, on a clock that a test moves."""

    def __init__(self, folder: Path, policy: AlertPolicy, most: int = 50) -> None:
        self.now_ms = START_MS
        self.store = AlertStore(folder / "alerts.db")
        self.robot = Robot(most)
        self.policy = policy
        self.book = AlertBook(TENANT, policy)
        self.counts: dict[str, int] = {}
        self.courier = Courier(
            "ops", self.robot, Bucket(20, MINUTE_MS), self.on_store, give_up_after_ms=3_600_000,
            now_ms=lambda: self.now_ms, rng=Random(1), count=self._count,
        )  # fmt: skip

    def _count(self, _: str, outcome: str, number: int) -> None:
        self.counts[outcome] = self.counts.get(outcome, 0) + number

    async def on_store(self, function: Callable[[AlertStore], Any]) -> Any:
        return function(self.store)

    def judge(self, *names: str, **changes: Any) -> None:
        """Posts about so many entities, each of which opens an alert."""
        notices = [
            one for name in names for one in self.book.judge(make_facts(name, main_entity=name, **changes), self.now_ms)
        ]
        self.store.commit({TENANT: self.book.take_changes()}, notices, {TENANT: self.policy})

    async def run_for(self, time_ms: int) -> None:
        """Let the courier work while the clock goes on."""
        end_ms = self.now_ms + time_ms
        while self.now_ms < end_ms:
            wait_ms = await self.courier.step()
            self.now_ms = min(end_ms, self.now_ms + wait_ms)

    @property
    def delivery(self) -> dict[str, Any]:
        found: dict[str, Any] = self.store.deliveries(TENANT)[0]
        return found


POLICY = AlertPolicy(rules=DEFAULT_RULES[:1], routes=(Route(channel="ops"),), storm_alerts=1_000, escalate_after_s={})


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    found = Office(tmp_path, POLICY)
    yield found
    found.store.close()


async def test_few_messages_go_one_by_one_and_once(office: Office) -> None:
    office.judge("a", "b")
    await office.run_for(1_000)
    assert [len(ids) for _, ids in office.robot.told] == [1, 1]
    await office.run_for(600_000)
    assert len(office.robot.told) == 2
    assert office.delivery["sent"] == 2


async def test_many_messages_are_merged(office: Office) -> None:
    office.judge(*(f"e{number}" for number in range(120)))
    await office.run_for(1_000)
    assert [len(ids) for _, ids in office.robot.told] == [50, 50, 20]


async def test_no_more_than_twenty_messages_go_within_any_minute(tmp_path: Path) -> None:
    office = Office(tmp_path, POLICY, most=1)
    for number in range(90):
        office.judge(f"e{number}")
        await office.run_for(2_000)
    await office.run_for(300_000)
    times = [at for at, _ in office.robot.told]
    assert len(times) == 90
    assert all(later - first >= MINUTE_MS for first, later in zip(times, times[20:], strict=False))
    office.store.close()


async def test_a_rate_limit_is_waited_for_and_nothing_is_lost(office: Office) -> None:
    office.robot.faults = [LaterError("RATE_LIMITED", 60_000)]
    office.judge("a")
    await office.run_for(59_000)
    assert office.robot.told == []
    assert (office.courier.health.fault, office.courier.health.is_broken) == ("RATE_LIMITED", False)
    await office.run_for(2_000)
    assert len(office.robot.told) == 1
    assert office.courier.health.fault == ""


async def test_a_broken_channel_keeps_its_messages_and_says_so(office: Office) -> None:
    office.robot.faults = [BrokenError("KEY_INVALID")] * 2
    office.judge("a")
    await office.run_for(BROKEN_WAIT_MS + 1_000)
    assert (office.courier.health.fault, office.courier.health.is_broken) == ("KEY_INVALID", True)
    assert office.delivery["pending"] == 1
    await office.run_for(2 * BROKEN_WAIT_MS)
    assert office.delivery["sent"] == 1


async def test_a_message_that_is_refused_does_not_hold_up_others(office: Office) -> None:
    office.robot.faults = [RefusedError("ERRCODE_40058"), RefusedError("ERRCODE_40058")]
    office.judge("a", "b", "c", "d", "e")
    await office.run_for(1_000)
    # Together, then each alone: the first of these is refused for good.
    assert [len(ids) for _, ids in office.robot.told] == [1, 1, 1, 1]
    assert (office.delivery["failed"], office.delivery["sent"]) == (1, 4)


async def test_a_message_that_nobody_takes_fails_in_the_end_and_is_counted(office: Office) -> None:
    office.robot.faults = [LaterError("UNREACHABLE")] * 1_000
    office.judge("a")
    await office.run_for(2 * 3_600_000)
    assert (office.delivery["failed"], office.delivery["pending"], office.counts["failed"]) == (1, 0, 1)


async def test_a_full_queue_drops_the_least_and_counts_it(office: Office) -> None:
    mild = Rule(name="mild", severity="info", when=DEFAULT_RULES[0].when)
    office.policy = POLICY.model_copy(update={"rules": (mild,)})
    office.book = AlertBook(TENANT, office.policy)
    office.judge(*(f"mild {number}" for number in range(MAX_PENDING)))
    office.policy = POLICY
    office.book = AlertBook(TENANT, POLICY)
    office.judge(*(f"grave {number}" for number in range(100)))
    assert (office.delivery["pending"], office.delivery["dropped"]) == (MAX_PENDING, 100)
    first = office.store.due("ops", START_MS, 100)
    assert {one.notice.alert.severity for one in first} == {"critical"}


async def test_who_was_not_told_of_an_alert_is_not_told_that_it_was_none(office: Office) -> None:
    office.judge("a", is_final=False)
    office.judge("a", severity=1)
    await office.run_for(1_000)
    assert office.robot.told == []


async def test_who_was_told_of_an_alert_is_told_that_it_was_none(office: Office) -> None:
    office.judge("a", is_final=False)
    await office.run_for(1_000)
    office.judge("a", severity=1)
    await office.run_for(1_000)
    assert len(office.robot.told) == 2


async def test_quiet_hours_hold_messages_and_lose_none(tmp_path: Path) -> None:
    # START_MS is 2026-11-18 11:06:40 UTC.
    quiet = QuietHours.model_validate({"from": "11:00", "until": "12:00", "lets_through": "critical"})
    mild = Rule(name="mild", when=DEFAULT_RULES[0].when)
    office = Office(tmp_path, POLICY.model_copy(update={"rules": (mild,), "quiet": quiet}))
    office.judge("a", "b", "c", "d", "e")
    await office.run_for(52 * MINUTE_MS)
    assert office.robot.told == []
    await office.run_for(5 * MINUTE_MS)
    assert [len(ids) for _, ids in office.robot.told] == [5]
    office.store.close()


def test_waits_grow_to_a_bound() -> None:
    waits = [back_off_ms(tries, Random(7)) for tries in (0, 1, 5, 500)]
    assert FIRST_WAIT_MS * 0.75 <= waits[0] <= FIRST_WAIT_MS
    assert waits[1] < waits[2] < waits[3] <= MOST_WAIT_MS
