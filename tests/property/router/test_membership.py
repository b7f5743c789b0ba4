"""Whatever sources say and however they fail, the members are what the rules say."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ssop_router.core.membership import Membership, Place

ADDRESSES = [f"n{number}:1" for number in range(6)]
LINGER_MS = 1_000
MAX_NODES = 5
SOURCES = {"dns": True, "lease": False}
places = st.sets(st.sampled_from(ADDRESSES), max_size=6)


class MembershipMachine(RuleBasedStateMachine):
    """Reads sources in any order, with nodes that live and die."""

    @initialize(static=st.sets(st.sampled_from(ADDRESSES), max_size=3))
    def begin(self, static: set[str]) -> None:
        self.now_ms = 0
        self.static = static
        self.alive: set[str] = set()
        self.joined = set(static)
        self.last: dict[str, set[str]] = {name: set() for name in SOURCES}
        self.good: dict[str, bool] = dict.fromkeys(SOURCES, False)
        self.seen: dict[str, set[str]] = {name: set() for name in SOURCES}
        self.lacking: dict[str, int] = {}
        self.membership = Membership(
            [Place(address) for address in static], SOURCES, linger_ms=LINGER_MS, max_nodes=MAX_NODES, now_ms=0
        )

    @rule(name=st.sampled_from(sorted(SOURCES)), found=places)
    def read(self, name: str, found: set[str]) -> None:
        if name == "lease":
            if not self.good[name]:
                self.lacking.clear()
            for address in self.seen[name] - found:
                self.lacking.setdefault(address, self.now_ms)
            for address in found:
                self.lacking.pop(address, None)
        self.membership.take(name, [Place(address) for address in found], self.now_ms)
        self.last[name], self.good[name] = set(found), True
        self.seen[name] |= found
        self.settle()

    @rule(name=st.sampled_from(sorted(SOURCES)))
    def fail(self, name: str) -> None:
        before = set(self.membership.members)
        self.membership.fail(name)
        self.good[name] = False
        if not any(self.good.values()):
            self.settle()
            assert set(self.membership.members) >= before

    @rule(duration_ms=st.integers(1, 2 * LINGER_MS))
    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    @rule(address=st.sampled_from(ADDRESSES))
    def turn(self, address: str) -> None:
        self.alive ^= {address}

    def settle(self) -> None:
        change = self.membership.settle(self.now_ms, self.alive.__contains__)
        joined = {place.address for place in change.joined}
        assert not joined & self.joined, "who is there can't join"
        assert set(change.left) <= self.joined, "who is not there can't leave"
        self.joined = (self.joined | joined) - set(change.left)
        for address in change.left:
            assert address not in self.static
            assert address not in self.last["dns"]
            assert address not in self.last["lease"]
            if address in self.seen["lease"] and self.good["lease"] and address in self.lacking:
                is_over = self.now_ms - self.lacking[address] >= LINGER_MS
                assert address not in self.alive or is_over, "one that is well stays until its time is over"
        # One that went is gone from what the lease source has said.
        gone = {
            address
            for address, since_ms in self.lacking.items()
            if self.good["lease"] and (address not in self.alive or self.now_ms - since_ms >= LINGER_MS)
        }
        for address in gone:
            del self.lacking[address]
            self.seen["lease"].discard(address)
        self.is_refusing = change.refused > 0

    @invariant()
    def the_changes_add_up(self) -> None:
        assert self.joined == set(self.membership.members)

    @invariant()
    def who_is_in_the_settings_stays(self) -> None:
        assert self.static <= set(self.membership.members)

    @invariant()
    def there_are_never_too_many(self) -> None:
        assert len(self.membership.members) <= max(MAX_NODES, len(self.static))

    @invariant()
    def every_member_has_a_source(self) -> None:
        for address in self.membership.members:
            assert self.membership.sources_of(address)
            assert self.membership.age_ms(address, self.now_ms) >= 0


TestMembership = MembershipMachine.TestCase
TestMembership.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
