"""A mesh that the kernel and Prometheus watch: what they see, beside what services and clients say of themselves."""

import asyncio
import math
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from helpers import counting_client
from helpers.dashboards import EXPRESSIONS
from helpers.eventually import eventually
from helpers.kernel_view import build_object, copy_codec, run_exporter
from helpers.live_mesh import wait_until
from helpers.opinion import signed
from helpers.prometheus import Prometheus, run_prometheus, scale_waits
from helpers.watched_mesh import SHARE, WatchedMesh, run_client, run_watched_mesh
from ssop_cli.embedded import free_port
from ssop_sdk import AsyncSsopClient, FrameLoss

pytestmark = [pytest.mark.needs("ebpf"), pytest.mark.needs("prometheus"), pytest.mark.timeout(600)]
PROMPTS, TIMES = 2, 12


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedMesh]:
    """A mesh whose router loses one frame of a hundred."""
    with run_watched_mesh(tmp_path_factory.mktemp("w")) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(watched: WatchedMesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus over all of it, whose alerts wait for seconds where others wait for minutes."""
    targets = {f"ssop-{name}": [f"127.0.0.1:{port}"] for name, port in watched.ports.items()}
    targets |= {"ssop-ebpf": [watched.view.address], "ssop-gateway": [watched.mesh.url.removeprefix("http://")]}
    targets["ssop-opinion"] = [watched.opinion]
    with run_prometheus(
        tmp_path_factory.mktemp("p"), targets, change=lambda rules: scale_waits(rules, 1 / 60)
    ) as running:
        wait_until(lambda: running.value("sum(up)") == len(targets), 60, "everything is scraped")
        yield running


@pytest.fixture(scope="module")
def numbers(watched: WatchedMesh, prometheus: Prometheus) -> dict[str, float]:
    """Frames by who counts them, when a client has got its answers; and whether the SDK told of a gap afterwards."""
    with run_client(watched, PROMPTS, TIMES) as client:
        router, node, kernel = watched.read("router"), watched.read("inference"), watched.view.read()

        def frames(service: str, event: str) -> float:
            return kernel.sum("ssop_ebpf_frames_total", service=service, event=event)

        return {
            "kernel_router_sent": frames("router", "sent"),
            "kernel_router_received": frames("router", "received"),
            "kernel_node_sent": frames("inference", "sent"),
            "kernel_node_made": frames("inference", "made"),
            "kernel_client": frames("client", "decoded"),
            "kernel_decisions": kernel.sum("ssop_ebpf_decision_seconds_count"),
            "kernel_latencies": kernel.sum("ssop_ebpf_frame_latency_seconds_count"),
            "kernel_relays": kernel.sum("ssop_ebpf_relay_seconds_count"),
            "router_sent": router.sum("ssop_router_frames_sent_total"),
            "router_received_by_receipts": router.sum("ssop_router_frames_received_total"),
            "router_lost_by_receipts": router.sum("ssop_router_frames_lost_total"),
            "router_dropped": router.sum("ssop_router_frames_dropped_total"),
            "router_decisions": router.sum("ssop_router_decision_seconds_count"),
            "node_sent": node.sum("ssop_inference_frames_sent_total"),
            "client_received": client.received,
            "client_missing": client.missing,
            "answers": client.answers,
            "sees_gap": client.sees_gap(),
        }


def test_frames_that_the_router_sent_are_counted_once(numbers: dict[str, float]) -> None:
    assert numbers["kernel_router_sent"] == numbers["router_sent"] > 20 * numbers["answers"]


def test_frames_of_the_node_are_counted_once_on_every_hop(numbers: dict[str, float]) -> None:
    assert (
        numbers["kernel_node_made"]
        == numbers["kernel_node_sent"]
        == numbers["node_sent"]
        == numbers["kernel_router_received"]
        > 0
    )


def test_frames_that_a_client_got_are_counted_once(numbers: dict[str, float]) -> None:
    assert numbers["kernel_client"] == numbers["client_received"]


def test_one_frame_of_a_hundred_was_lost_and_everybody_knows_how_many(numbers: dict[str, float]) -> None:
    lost = numbers["kernel_router_sent"] - numbers["kernel_client"]
    assert lost == numbers["router_dropped"] == numbers["client_missing"] == numbers["router_lost_by_receipts"]
    assert lost / numbers["kernel_router_sent"] == pytest.approx(SHARE, rel=0.25)


def test_receipts_say_what_the_kernel_saw(numbers: dict[str, float]) -> None:
    # The receipt of the last answer has no call to go with.
    last = numbers["client_received"] - numbers["router_received_by_receipts"]
    assert 0 < last < 30


def test_the_sdk_tells_of_the_gap(numbers: dict[str, float]) -> None:
    assert numbers["sees_gap"]


def test_every_decision_is_counted_with_its_time(numbers: dict[str, float]) -> None:
    assert numbers["kernel_decisions"] == numbers["router_decisions"] >= numbers["answers"]


def test_frames_of_one_host_have_a_latency_and_relays_one_of_their_own(numbers: dict[str, float]) -> None:
    # Of answers that a node made for this request; what is replayed has been made long ago.
    assert 0 < numbers["kernel_latencies"] < numbers["kernel_client"]
    assert numbers["kernel_relays"] > 0


def test_the_failpoint_is_in_the_log_of_the_router_alone(watched: WatchedMesh) -> None:
    assert "a failpoint is on" in watched.mesh.log("router")
    assert "a failpoint is on" not in watched.mesh.log("inference")


def test_the_exporters_text_is_what_promtool_takes(watched: WatchedMesh) -> None:
    with urllib.request.urlopen(f"http://{watched.view.address}/metrics", timeout=30) as response:
        text = response.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr.decode()


def test_no_metric_names_a_stream_a_process_or_a_tenant(watched: WatchedMesh) -> None:
    labels = {name for _, have in watched.view.read().values for name, _ in have}
    assert labels <= {"service", "unit", "event", "le", "tier", "use", "probe", "library"}


def test_the_http_edge_receives_what_the_router_sends_it(watched: WatchedMesh, numbers: dict[str, float]) -> None:
    def counts() -> tuple[float, float]:
        kernel, router = watched.view.read(), watched.read("router")
        sent = kernel.sum("ssop_ebpf_frames_total", service="router", event="sent")
        received = kernel.sum("ssop_ebpf_frames_total", service="gateway", event="received")
        return sent - router.sum("ssop_router_frames_dropped_total"), received

    before = counts()
    headers = {"authorization": f"Bearer {watched.mesh.key}", "content-type": "application/x-ssop+json"}
    body = {"prompt": "Judge the parts of post 0.", "output_schema": counting_client.SCHEMA}
    answer = httpx.post(f"{watched.mesh.url}/v1/generate", json=body, headers=headers, timeout=120)
    assert answer.status_code == 200
    after = counts()
    assert after[0] - before[0] == after[1] - before[1] > counting_client.ITEMS


async def test_the_loss_is_a_ratio_in_prometheus_and_pages(numbers: dict[str, float], prometheus: Prometheus) -> None:
    def ratio() -> float:
        return prometheus.value("ssop:frames_lost:ratio5m") or 0.0

    await eventually(lambda: ratio() == pytest.approx(SHARE, rel=0.5), timeout_s=90)
    firing = 'ALERTS{alertname="SsopFramesLost",alertstate="firing",severity="page"}'
    await eventually(lambda: prometheus.value(firing) == 1, timeout_s=90)


async def test_nothing_is_lost_between_node_and_router_in_prometheus(
    numbers: dict[str, float], prometheus: Prometheus
) -> None:
    await eventually(lambda: prometheus.value("ssop:frames_lost_inside:ratio5m") is not None, timeout_s=90)
    sent, received = (
        prometheus.value(f'sum(ssop_ebpf_frames_total{{service="{service}",event="{event}"}})')
        for service, event in (("inference", "sent"), ("router", "received"))
    )
    assert sent == received


async def test_every_panel_shows_something(
    watched: WatchedMesh, numbers: dict[str, float], prometheus: Prometheus
) -> None:
    await send_posts(watched)
    await ask_with_passages(watched)

    def is_shown(expression: str) -> bool:
        found = prometheus.query(expression.replace("$__rate_interval", "10m"))
        return any(not math.isnan(float(series["value"][1])) for series in found)

    assert len(EXPRESSIONS) > 40
    deadline_s = time.monotonic() + 90
    empty = list(EXPRESSIONS)
    while empty and time.monotonic() < deadline_s:
        empty = [expression for expression in empty if not is_shown(expression)]
        await asyncio.sleep(0.5)
    assert not empty, "\n".join(empty)


async def send_posts(watched: WatchedMesh) -> None:
    """Posts that become records, and what is no post, twice: the first one only makes its series."""
    async with httpx.AsyncClient(timeout=60) as client:
        for number in range(2):
            body = f'{{"id": "p{number}", "text": "The kettle leaks."}}\n{{"id": "q{number}"}}'.encode()
            headers = signed(body, nonce=f"nonce-of-{number}") | {"content-type": "application/x-ndjson"}
            answer = await client.post(f"http://{watched.opinion}/v1/opinion/posts", content=body, headers=headers)
            assert answer.status_code == 202, answer.text


async def ask_with_passages(watched: WatchedMesh) -> None:
    """Type questions about a document, and send them when their passages must be there; every other one is given up."""
    mesh = watched.mesh
    async with AsyncSsopClient(mesh.key, mesh.target, timeout_s=120) as client:
        await client.index.upsert("handbook", {"refund": "Goods may be returned within 30 days."})
        for number in range(20):
            async with client.session() as session:
                stream = await session.begin("", output_schema=None, policy="no_cache", is_complete=False)
                await stream.piece("Within how many days may goods be returned, and in what state must they be?")
                await asyncio.sleep(1.5)
                if number % 2 == 0:
                    await stream.commit()
                    with suppress(FrameLoss):
                        await stream.result()
            ages = watched.view.read()
            used, wasted = (ages.sum("ssop_ebpf_prefetch_age_seconds_count", use=use) for use in ("hit", "wasted"))
            # The first one only makes the series that the second one is an increase of.
            if used >= 2 and wasted:
                return
    raise AssertionError("no two prefetches were used")


def send(codec: Path, document: bytes) -> int:
    """Have another process make a document; the number of its frames."""
    program = (
        "import sys; from ssop_codec import Encoder\n"
        "encoder = Encoder(None); encoder.feed(sys.argv[1].encode()); encoder.finish(); print(encoder.frames)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, document.decode()],
        env={**os.environ, "PYTHONPATH": str(codec.parent)},
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return int(done.stdout)


async def test_probes_of_a_library_that_is_replaced_are_watched_again(tmp_path: Path) -> None:
    codec = copy_codec(tmp_path / "lib")
    with run_exporter(tmp_path, build_object(tmp_path), codec, free_port()) as view:
        before = send(codec, b"[1]")
        assert view.frames("client", "made") == before
        (library,) = codec.glob("_frame_writer.*so")
        shutil.copy2(library, tmp_path / "new")
        (tmp_path / "new").replace(library)
        await eventually(lambda: view.log.read_text().count('"frame_sent"') >= 3, timeout_s=60)
        after = send(codec, b"[1,2]")
        assert view.frames("client", "made") == before + after


async def test_a_library_that_is_gone_is_said_not_to_be_watched(tmp_path: Path) -> None:
    codec = copy_codec(tmp_path / "lib")
    with run_exporter(tmp_path, build_object(tmp_path), codec, free_port()) as view:
        assert view.read().sum("ssop_probe_attached", probe="frame_sent") == 1
        for library in codec.glob("_frame_writer.*so"):
            library.unlink()
        await eventually(lambda: view.read().sum("ssop_probe_attached", probe="frame_sent") == 0, timeout_s=60)
        assert view.read().sum("ssop_probe_attached", probe="frame_received") == 1


def test_an_object_that_is_none_ends_the_exporter_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_bytes(b"no ELF")
    environ = {**os.environ, "SSOP_EBPF_OBJECT_FILE": str(tmp_path / "x.o")}
    done = subprocess.run(
        [sys.executable, "-m", "ssop_ebpf.main"], env=environ, capture_output=True, check=False, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "x.o" in done.stderr
