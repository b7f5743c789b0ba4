"""The open sessions of a router, as one."""

import asyncio

from helpers.eventually import eventually
from ssop_router.sessions import Sessions


class Member:
    """A session that only listens."""

    def __init__(self) -> None:
        self.looks = self.interruptions = 0

    def look(self, now_s: float) -> None:
        assert now_s <= asyncio.get_running_loop().time()
        self.looks += 1

    def interrupt(self) -> None:
        self.interruptions += 1


async def test_each_is_looked_at_until_it_is_over() -> None:
    sessions, stays, goes = Sessions(0.05), Member(), Member()
    sessions.add(stays)
    sessions.add(goes)
    await eventually(lambda: stays.looks >= 2 and goes.looks >= 2, 60)
    sessions.discard(goes)
    looks = goes.looks
    before = stays.looks
    await eventually(lambda: stays.looks >= before + 2, 60)
    assert goes.looks == looks


async def test_without_sessions_nothing_runs() -> None:
    sessions, member = Sessions(0.05), Member()
    sessions.add(member)
    sessions.discard(member)
    sessions.add(member)
    sessions.discard(member)
    assert (len(sessions), sessions._timer) == (0, None)


async def test_drain_interrupts_each_that_is_open() -> None:
    sessions, member = Sessions(300), Member()
    sessions.add(member)
    sessions.drain()
    assert (sessions.is_draining, member.interruptions) == (True, 1)
    sessions.discard(member)


async def test_session_may_leave_while_it_is_interrupted() -> None:
    sessions = Sessions(300)

    class Leaving(Member):
        def interrupt(self) -> None:
            sessions.discard(self)

    for _ in range(3):
        sessions.add(Leaving())
    sessions.drain()
    assert len(sessions) == 0
