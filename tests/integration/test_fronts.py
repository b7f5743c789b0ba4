"""The DPDK front and the XDP guard between two hosts: a mesh is used through them, and floods are not."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.fronts import (
    build,
    counters,
    front_counters,
    mounted_bpffs,
    running_front,
    running_nginx,
)
from helpers.live_mesh import LiveMesh, run_mesh
from helpers.two_hosts import SERVER, TwoHosts, run, two_hosts

CLIENT_PROGRAM = """
import asyncio, json, sys
from ssop_sdk import AsyncSsopClient

schema = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"],
          "additionalProperties": False}

async def main():
    found = []
    async with AsyncSsopClient(sys.argv[1], sys.argv[2], output_schema=schema, timeout_s=60) as client:
        for number in range(5):
            async with client.generate(f"how is sea {number}?") as stream:
                mood = (await stream.result())["mood"]
            found.append([mood, stream.accounting.frames_sent, stream.frames_received])
        async with client.session() as session, await session.begin("how is") as stream:
            await stream.piece(" the wind?")
            await stream.commit()
            mood = (await stream.result())["mood"]
            found.append([mood, stream.accounting.frames_sent, stream.frames_received])
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with two_hosts() as made:
        yield made


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("dpdk", tmp_path_factory.mktemp("front"))


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted_bpffs():
        yield build("xdp", tmp_path_factory.mktemp("guard"))


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMesh]:
    folder = tmp_path_factory.mktemp("mesh")
    with run_mesh(folder, {"router": {"listen": [f"unix:{folder / 'router.sock'}"]}}) as running:
        yield running


def pinged(hosts: TwoHosts, count: int) -> int:
    """Answers to so many pings, one each 10 ms."""
    command = hosts.on_client("ping", "-q", "-c", str(count), "-i", "0.01", "-W", "2", SERVER)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return int(done.stdout.partition(" received")[0].rpartition(" ")[2])


def use_mesh(hosts: TwoHosts, mesh: LiveMesh, folder: Path) -> None:
    """A client on the other host gets its answers whole, through nginx on the server."""
    with running_nginx(hosts, folder / "nginx", Path(mesh.target.removeprefix("unix:"))) as target:
        program = hosts.on_client(sys.executable, "-c", CLIENT_PROGRAM, mesh.key, target)
        found = json.loads(run(*program))
    assert len(found) == 6
    assert all(mood in {"good", "bad"} and sent == received > 0 for mood, sent, received in found)


@pytest.mark.needs("dpdk")
@pytest.mark.needs("nginx")
def test_mesh_is_used_through_the_front_and_nothing_is_lost(
    hosts: TwoHosts, front: Path, mesh: LiveMesh, tmp_path: Path
) -> None:
    with running_front(hosts, front) as prefix:
        use_mesh(hosts, mesh, tmp_path)
        found = front_counters(prefix)
    assert found["passed"] == found["ssop_front_from_wire_total"] > 20
    assert found["ssop_front_to_wire_total"] == found["ssop_front_from_taps_total"] > 20
    lost = ("ssop_front_tap_full_total", "ssop_front_wire_full_total", "malformed", "flags", "syn_rate", "packet_rate")
    assert {name: found[name] for name in lost} == dict.fromkeys(lost, 0)


@pytest.mark.needs("dpdk")
def test_front_drops_what_one_source_sends_above_its_rate(hosts: TwoHosts, front: Path) -> None:
    with running_front(hosts, front, "--packet-rate", "5", "--packet-burst", "20") as prefix:
        answers = pinged(hosts, 100)
        found = front_counters(prefix)
    assert 15 <= answers < 60
    assert found["packet_rate"] >= 100 - answers


@pytest.mark.needs("dpdk")
@pytest.mark.parametrize("arguments", [["--syn-rate", "0"], ["--packet-rate", "much"], ["--color"], ["more"]])
def test_front_refuses_what_it_does_not_know(front: Path, arguments: list[str]) -> None:
    eal = ["--no-huge", "-m", "64", "--no-pci", "--no-telemetry", "--file-prefix=ssop-refused"]
    command = [str(front / "ssop-front"), *eal, "--", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert arguments[0].lstrip("-") in done.stderr + done.stdout


@pytest.mark.needs("xdp")
@pytest.mark.needs("nginx")
def test_mesh_is_used_through_the_guard(hosts: TwoHosts, guard: Path, mesh: LiveMesh, tmp_path: Path) -> None:
    program = str(guard / "ssop-xdp-guard")
    attach = ["attach", hosts.server_wire, "--object", str(guard / "guard.bpf.o")]
    run(*hosts.on_server(program, *attach))
    use_mesh(hosts, mesh, tmp_path)
    found = counters(run(*hosts.on_server(program, "stats", hosts.server_wire)))
    assert found.pop("passed") > 20
    assert set(found.values()) == {0}
    run(*hosts.on_server(program, "detach", hosts.server_wire))


@pytest.mark.needs("xdp")
def test_guard_drops_what_one_source_sends_above_its_rate_unless_it_is_trusted(hosts: TwoHosts, guard: Path) -> None:
    program = str(guard / "ssop-xdp-guard")
    attach = ["attach", hosts.server_wire, "--object", str(guard / "guard.bpf.o"), "--packet-rate", "5"]
    run(*hosts.on_server(program, *attach, "--packet-burst", "20"))
    answers = pinged(hosts, 100)
    found = counters(run(*hosts.on_server(program, "stats", hosts.server_wire)))
    assert 15 <= answers < 60
    assert found["packet_rate"] >= 100 - answers
    run(*hosts.on_server(program, *attach, "--packet-burst", "20", "--trust", "10.78.0.0/24"))
    assert pinged(hosts, 100) == 100
    run(*hosts.on_server(program, "detach", hosts.server_wire))


@pytest.mark.needs("xdp")
def test_guard_leaves_another_program_on_the_interface(hosts: TwoHosts, guard: Path) -> None:
    wire, built = hosts.server_wire, str(guard / "guard.bpf.o")
    run(*hosts.on_server("ip", "link", "set", wire, "xdpgeneric", "obj", built, "sec", "xdp"))
    command = hosts.on_server(str(guard / "ssop-xdp-guard"), "attach", wire, "--object", built, "--mode", "generic")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "another XDP program" in done.stderr


@pytest.mark.needs("xdp")
@pytest.mark.parametrize(
    "arguments", [["attach", "lo", "--syn-rate", "0"], ["attach", "lo", "--trust", "10.0.0.0/33"], ["watch", "lo"]]
)
def test_guard_refuses_what_it_does_not_know(guard: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [str(guard / "ssop-xdp-guard"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "usage:" in done.stderr
