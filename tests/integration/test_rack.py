"""The four hosts of the example inventory, as namespaces behind a switch that loses 5 % and delays by 20 ms +- 10 ms.

One run for all: requests through each front, all certificates changed meanwhile, a way that is cut in one direction and
healed, a host that dies and comes back. The longer ones are in `tests/drill/test_rack.py`.
"""

from collections.abc import Iterator

import pytest

from helpers.ledger import LedgerFault
from helpers.lossy_switch import ROUGH
from helpers.rack import ANSWER, RackClient, address_of, run_rack
from helpers.rack_drill import TOLD, Drill, Outcomes, check_outcomes, lacks, nodes_of
from helpers.two_hosts import run

SEED = 1
CLIENTS = 4
pytestmark = [
    pytest.mark.timeout(600),
    *(pytest.mark.needs(name) for name in ("hosts", "nginx", "openssl")),
]


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    with run_rack(tmp_path_factory.mktemp("rack"), seed=SEED) as rack, RackClient(rack) as client:
        yield Drill(rack, client)


@pytest.fixture(scope="module")
def rotated(drill: Drill) -> Outcomes:
    """What clients of the fronts saw, each with a connection of its own, while all certificates were changed."""
    drill.converge("begun")
    with drill.load(CLIENTS, drill.fronts, is_fresh=True):
        drill.rack.rotate()
        drill.client.tell("ask", policy="full,no_cache", count=4, **drill.fronts)
    return drill.outcomes


@pytest.fixture(scope="module")
def harmed(drill: Drill, rotated: Outcomes) -> Drill:
    """After all that was done to it; the host that comes back has other certificates than before."""
    drill.rack.switch.set(ROUGH)
    with drill.load(at_once=CLIENTS):
        drill.converge("begun")
        drill.cut("host-1", "host-3", until=lacks(drill, "host-1", "host-3"))
        drill.rack.hosts["host-4"].kill()
        drill.converge("host-4 killed", "host-1", "host-2", "host-3")
        drill.rack.start("host-4")
        drill.converge("host-4 started")
    print(drill.line())
    return drill


def test_nodes_of_other_hosts_join_by_their_leases(drill: Drill) -> None:
    drill.converge("all joined")
    view = drill.client.tell("view", **drill.mesh)
    for nodes in view.values():
        joined = {address for address, node in nodes.items() if node["sources"] == ["lease"]}
        assert joined == nodes_of("host-3", "host-4")


@pytest.mark.parametrize("host", ["host-1", "host-2"])
def test_requests_through_the_front_of_a_host_are_answered_by_nodes_of_others(drill: Drill, host: str) -> None:
    drill.converge("all joined")
    answers = [
        answer
        for policy in ("full,no_cache", "lite,no_cache")
        for answer in drill.client.tell("ask", policy=policy, count=8, **drill.front(host))
    ]
    assert [answer["answer"] for answer in answers] == [ANSWER] * 16
    assert {answer["node"][:6] for answer in answers} - {host}
    assert {answer["node"][7:11] for answer in answers} == {"full", "lite"}


def test_certificates_change_and_no_request_fails(drill: Drill, rotated: Outcomes) -> None:
    assert len(rotated) > 10
    assert [outcome for outcome in rotated if outcome["answer"] != ANSWER or outcome["level"]] == []
    fronts = [(address_of(name, 443), host.folder / "front.pem") for name, host in drill.rack.fronts().items()]
    inner = [(address, drill.rack.certificate.certificate) for address in [*drill.rack.routers, *nodes_of("host-3")]]
    for address, certificate in [*fronts, *inner]:
        number = run("openssl", "x509", "-noout", "-serial", "-in", str(certificate)).strip()
        assert drill.rack.serial(address) == number


def test_no_request_that_was_accepted_is_lost(harmed: Drill) -> None:
    assert len(harmed.outcomes) > 50
    check_outcomes(harmed.outcomes, harmed.rack.records(), told=TOLD)
    # No more than had fields of their answers when a host died: replayed models go on with nothing that others began.
    assert sum(bool(outcome["reason"]) for outcome in harmed.outcomes) <= CLIENTS


def test_every_request_has_a_terminal_record(harmed: Drill) -> None:
    records = harmed.rack.records()
    assert [o["request_id"] for o in harmed.outcomes if not o["reason"] and o["request_id"] not in records] == []


def test_frames_were_lost_and_cut(harmed: Drill) -> None:
    harmed.rack.switch.set(ROUGH)
    frames = harmed.rack.switch.rough
    assert 0.03 < frames["lost"] / (frames["passed"] + frames["lost"]) < 0.07
    assert frames["cut"] > 10


@pytest.mark.parametrize(
    ("outcome", "records"),
    [
        ({"answer": None, "reason": ""}, {}),
        ({"answer": None, "reason": "DEADLINE_EXCEEDED"}, {"r": 1}),
        ({"answer": {"mood": "bad", "ok": True}, "reason": ""}, {"r": 1}),
        ({"answer": ANSWER, "reason": ""}, {"r": 3}),
    ],
)
def test_lost_answers_are_seen(outcome: dict[str, object], records: dict[str, int]) -> None:
    with pytest.raises(LedgerFault):
        check_outcomes([{"request_id": "r", "level": 0, **outcome}], records)
