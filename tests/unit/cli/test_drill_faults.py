"""The matrix, and how errors of clients are judged."""

import grpc
import pytest

from ssop_cli.drill.faults import FAULTS, Act, choose_faults, left_out
from ssop_cli.drill.ledger import CLEAN_RUN, Kind
from ssop_cli.drill.load import CLIENTS, UNREACHABLE, judge_error
from ssop_cli.drill.trials import TRIALS
from ssop_cli.drill.wire import Mode
from ssop_cli.failure import CommandError
from ssop_sdk import SsopError
from ssop_sdk.errors import FrameLoss, GenerationInterrupted, Unavailable

CHILDREN = {"inference", "rag", "cache", "router", "redis-cache", "redis-state"}


def test_every_child_is_killed() -> None:
    assert {fault.child for fault in FAULTS if fault.act is Act.KILL} == CHILDREN


def test_every_child_but_the_router_is_frozen() -> None:
    assert {fault.child for fault in FAULTS if fault.act is Act.FREEZE} == CHILDREN - {"router"}


def test_names_are_unique() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)


def test_every_way_of_harming_a_wire_is_tried() -> None:
    assert {fault.mode for fault in FAULTS} == set(Mode)


def test_every_trial_is_there() -> None:
    assert {fault.name for fault in FAULTS if fault.act is Act.TRIAL} == set(TRIALS)


def test_mesh_of_somebody_else_is_spared_what_needs_wires() -> None:
    chosen = choose_faults([], has_rig=False)
    assert not any(fault.needs_rig for fault in chosen)
    assert len(chosen) + len(left_out(has_rig=False)) == len(FAULTS)


def test_no_names_are_all_faults() -> None:
    assert choose_faults([]) == FAULTS


def test_faults_come_in_the_order_of_their_names_and_once() -> None:
    chosen = choose_faults(["kill-router", "kill-rag", "kill-router"])
    assert [fault.name for fault in chosen] == ["kill-router", "kill-rag"]


def test_an_unknown_fault_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(CommandError) as caught:
        choose_faults(["earthquake"])
    assert "kill-router" in caught.value.advice


def test_fault_that_needs_wires_is_refused_elsewhere_with_its_reason() -> None:
    with pytest.raises(CommandError, match="mesh of the drill's own"):
        choose_faults(["disk-full"], has_rig=False)


def test_a_clean_run_is_longer_than_what_can_be_in_flight() -> None:
    assert CLEAN_RUN > CLIENTS


def test_a_router_that_is_gone_is_unreachable() -> None:
    error = Unavailable("refused", code=grpc.StatusCode.UNAVAILABLE)
    assert judge_error(error, []).reason == UNREACHABLE


def test_a_refusal_of_the_mesh_keeps_its_reason() -> None:
    error = Unavailable("none", reason="NO_BACKEND", code=grpc.StatusCode.UNAVAILABLE, from_mesh=True)
    assert judge_error(error, []).reason == "NO_BACKEND"


def test_a_cut_answer_keeps_its_reason() -> None:
    assert judge_error(GenerationInterrupted("lost"), [("stars", 1)]).reason == "GENERATION_INTERRUPTED"


@pytest.mark.parametrize("error", [FrameLoss("frame 3 is missing"), ValueError("x"), KeyError("x")])
def test_lost_frames_and_errors_without_a_type_are_wrong(error: Exception) -> None:
    assert judge_error(error, []).kind is Kind.WRONG


def test_a_typed_error_after_a_field_that_changed_is_wrong() -> None:
    assert judge_error(SsopError("x"), [("stars", 1), ("stars", 2)]).kind is Kind.WRONG
