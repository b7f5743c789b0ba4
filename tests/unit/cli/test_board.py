"""What people see, as plain text."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from ssop.v1 import inference_pb2, mesh_pb2, router_pb2
from ssop_cli.analyze import honesty, summary_table
from ssop_cli.ask import schema_view
from ssop_cli.board import (
    child_line,
    memory_lines,
    nodes_table,
    services_table,
    show_age,
    show_bytes,
    show_ms,
    trials_table,
)
from ssop_cli.mesh import Access
from ssop_cli.post_board import values_text
from ssop_cli.report import ChildReport, Report
from ssop_cli.status import status_view
from ssop_cli.summary import Outcome, summarise

REPORT = Report(
    7,
    "degraded",
    "127.0.0.1:7300",
    "/x",
    0,
    ["a note"],
    [
        ChildReport("cache", "ready", "unix:/run/user/1000/ssop-0123456789/cache.sock", pid=42, restarts=1),
        ChildReport("router", "backoff", "127.0.0.1:7300", exit_code=-9, detail="next start in 0.5 s"),
    ],
)


def show(view: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def status() -> router_pb2.GetMeshStatusResponse:
    response = router_pb2.GetMeshStatusResponse(uptime_ms=61_000, frames_sent=15)
    node = response.nodes.add(address="unix:/x")
    node.status.node = "local"
    node.status.models.add(model="smollm2-135m-instruct", state=3, tiers=[1, 2], slots_total=4, constraint_mode=1)
    response.dependencies.add(name="rag", address="unix:/y")
    return response


def test_restarts_and_reasons_show() -> None:
    text = show(services_table(REPORT, 5_000))
    assert "cache" in text
    assert "42" in text
    assert "backoff (next start in 0.5 s)" in text
    assert "unix:…/cache.sock" in text


def test_state_of_a_service_is_whole_where_not_all_columns_fit() -> None:
    lines = show(services_table(REPORT, 5_000), 48).splitlines()
    assert [line.split()[:2] for line in lines] == [["service", "state"], ["cache", "ready"], ["router", "backoff"]]
    assert "…" not in "".join(lines)


def test_state_of_a_model_is_whole_where_not_all_columns_fit() -> None:
    text = show(nodes_table(status().nodes), 40)
    assert "smollm2-135m-instruct  ready" in text
    assert "…" not in text


def test_a_killed_child_says_its_signal() -> None:
    assert child_line(REPORT.children[1]) == "router: backoff, ended by signal 9, next start in 0.5 s"


def test_a_node_fits_eighty_columns() -> None:
    text = show(nodes_table(status().nodes), 80)
    assert "smollm2-135m-instruct" in text
    assert "lite+full" in text
    assert "…" not in text


def test_a_shared_model_is_said_aloud() -> None:
    text = show(status_view(REPORT, status(), Access("127.0.0.1:7300", "k"), 5_000))
    assert "serves both tiers" in text
    assert "rag: does not answer" in text


def test_a_key_is_never_shown() -> None:
    assert "secret-key" not in show(status_view(REPORT, status(), Access("127.0.0.1:7300", "secret-key"), 0))


def test_the_summary_shows_what_went_wrong() -> None:
    text = show(summary_table(summarise([Outcome("a", "invalid", "maximum at /severity")], 2.0)))
    assert "invalid 1" in text
    assert "maximum at /severity 1" in text


def test_markup_in_an_answer_is_text() -> None:
    assert "[bold]x[/bold]" in show(values_text({"summary": "[bold]x[/bold]\n\x1b[31m"}))


def test_control_characters_of_an_answer_never_reach_the_terminal() -> None:
    assert "\x1b" not in show(values_text({"summary": "\x1b[31m"}))


def test_the_demo_model_is_called_what_it_is() -> None:
    assert "judgements are not" in " ".join(honesty(["smollm2-135m-instruct"]).split())
    assert honesty(["qwen3-8b"]) == ""


def test_durations_and_sizes_have_units() -> None:
    assert [show_ms(None), show_ms(12.4), show_ms(2_345)] == ["-", "12 ms", "2.3 s"]
    assert [show_age(5_000), show_age(65_000), show_age(3_720_000)] == ["5 s", "1 min 05 s", "1 h 02 min"]
    assert [show_bytes(98_362_432), show_bytes(3 * 1024**3)] == ["94 MiB", "3.0 GiB"]


def test_a_schema_shows_its_tree() -> None:
    node: dict[str, object] = {"parent": 0, "key": "", "ref_node": None}
    backend = {"model": "m", "mode": "relaxed", "detail": "uniqueItems", "engine_limits": ["maxLength=512 at /a"]}
    found = {
        "schema_hash": "ab",
        "stream_buffer_size": 1024,
        "nodes": [
            node | {"node": 0, "step": "root", "types": ["object"], "required": False},
            node | {"node": 1, "step": "property", "key": "a", "types": ["string", "null"], "required": True},
        ],
        "annotations": ["format:color"],
        "caps": {"max_depth": {"used": 1, "limit": 32}},
        "backends": [backend],
    }
    text = show(schema_view(found))
    assert "string|null" in text
    assert "m: relaxed (uniqueItems)" in text
    assert "not checked: format:color" in text


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        (router_pb2.RateLimitView(), "not known before the first request"),
        (router_pb2.RateLimitView(is_known=True), "rate limit: none"),
        (router_pb2.RateLimitView(is_known=True, max_rps=50, rps=50), "50 requests per second and tenant (static)"),
        (router_pb2.RateLimitView(is_known=True, max_rps=50, rps=12.34, is_dynamic=True), "12.3 of 50 requests"),
        (router_pb2.RateLimitView(is_local=True, local_rps=25, is_budget_unchecked=True), "budgets are not checked"),
    ],
)
def test_the_rate_limit_shows(limit: router_pb2.RateLimitView, line: str) -> None:
    response = status()
    response.rate_limit.CopyFrom(limit)
    assert line in show(status_view(None, response, Access("127.0.0.1:7300", "k"), 0), 140)


def test_documents_that_were_lost_are_named_until_the_damaged_store_is_removed(tmp_path: Path) -> None:
    config = tmp_path / "ssop.toml"
    config.write_text(f'[rag]\ndirectory = "{tmp_path}/index"\n')
    report = replace(REPORT, config=str(config))
    access = Access("127.0.0.1:7300", "k")
    assert "damaged" not in show(status_view(report, None, access, 0))
    (tmp_path / "index-damaged").mkdir()
    (tmp_path / "index-damaged" / "lost.json").write_text('{"places": 2, "documents": 5}')
    assert "5 documents, 2 places" in show(status_view(report, None, access, 0), 240)


def test_memory_of_a_node_shows_with_its_gpus_and_its_cache() -> None:
    response = status()
    node = response.nodes[0]
    node.status.memory_free_bytes.value, node.status.memory_total_bytes.value = 3 << 30, 8 << 30
    node.status.process_memory_bytes.value = 512 << 20
    gpu = node.status.gpus.add(name="NVIDIA H200")
    gpu.memory_free_bytes.value, gpu.memory_total_bytes.value = 30 << 30, 140 << 30
    gpu.memory_free_bytes.age_ms = 61_000
    gpu.busy_ratio.value = 0.4
    node.status.models[0].kv_used_ratio.value = 0.12
    (line,) = memory_lines(response.nodes)
    assert line == (
        "local: memory 3.0 GiB of 8.0 GiB free; the process holds 512 MiB; "
        "NVIDIA H200 30.0 GiB of 140.0 GiB free (1 min 01 s ago), 40% busy; "
        "KV cache of smollm2-135m-instruct 12% used"
    )


def test_node_that_says_nothing_of_its_memory_has_no_line() -> None:
    assert list(memory_lines(status().nodes)) == []


def test_source_of_nodes_shows_where_some_join_at_run_time() -> None:
    response = status()
    assert "from" not in show(nodes_table(response.nodes))
    response.nodes[0].sources.append("static")
    late = response.nodes.add(address="10.0.0.7:7310", sources=["lease"], source_age_ms=61_000, is_leaving=True)
    late.status.node = "late"
    late.status.models.add(model="m", state=3)
    text = show(nodes_table(response.nodes), 140)
    assert "static" in text
    assert "lease 1 min 01 s ago" in text
    assert "leaving" in text


def test_numbers_of_later_versions_show_as_they_are() -> None:
    response = status()
    model = response.nodes[0].status.models[0]
    model.state = inference_pb2.ModelState.ValueType(98)
    model.constraint_mode = mesh_pb2.ConstraintMode.ValueType(97)
    tier = mesh_pb2.Tier.ValueType(96)
    model.tiers[:] = [mesh_pb2.TIER_LITE, tier]
    assert re.search(r" 98 +lite\+96 +97 ", show(nodes_table(response.nodes)))
    trial = router_pb2.TrialView(model="m", tier=tier, arms=[router_pb2.TrialArm(arm="stable")])
    assert "m for 96:" in show(trials_table([trial]))


def test_source_that_can_not_be_read_is_said() -> None:
    response = status()
    response.node_sources.add(name="lease", is_available=False, age_ms=2_000, nodes=3)
    text = show(status_view(None, response, Access("127.0.0.1:7300", "k"), 0))
    assert "nodes by lease: can't be read; its last list holds  3 nodes, 2 s ago" in text
