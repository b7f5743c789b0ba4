"""Frames by service and unit."""

from ssop_ebpf.core.ledger import Count, Event, Ledger, Origin

NODE = Origin("inference", "ssop-inference@0.service")
CLIENT = Origin("client", "")


def test_processes_of_a_unit_are_counted_together() -> None:
    ledger = Ledger()
    ledger.update({(1, 2): Count(3, 30), (2, 2): Count(4, 40), (3, 1): Count(5, 50)}, {1: NODE, 2: NODE, 3: CLIENT})
    assert list(ledger.totals()) == [
        (CLIENT, Event.DECODED, Count(5, 50)),
        (NODE, Event.SENT, Count(7, 70)),
    ]


def test_what_a_process_that_ended_has_counted_stays() -> None:
    ledger = Ledger()
    ledger.update({(1, 2): Count(3, 30)}, {1: NODE})
    ledger.settle([(1, 2)])
    ledger.update({}, {})
    assert list(ledger.totals()) == [(NODE, Event.SENT, Count(3, 30))]


def test_a_new_process_of_an_old_id_adds_to_its_own_service() -> None:
    ledger = Ledger()
    ledger.update({(1, 2): Count(3, 30)}, {1: NODE})
    ledger.settle([(1, 2)])
    ledger.update({(1, 2): Count(1, 10)}, {1: CLIENT})
    assert {(origin, event): count for origin, event, count in ledger.totals()} == {
        (NODE, Event.SENT): Count(3, 30),
        (CLIENT, Event.SENT): Count(1, 10),
    }


def test_totals_never_fall_over_lives_and_deaths() -> None:
    ledger = Ledger()
    seen = 0
    for life in range(1, 50):
        ledger.update({(life % 3, 0): Count(life, life)}, {life % 3: CLIENT})
        now = sum(count.frames for _, _, count in ledger.totals())
        assert now >= seen
        ledger.settle([(life % 3, 0)])
        seen = sum(count.frames for _, _, count in ledger.totals())
        assert seen == now
