"""Which files are watched, over a kernel and a /proc of the test's own."""

from pathlib import Path
from typing import cast

import pytest

from ssop_ebpf.core.host import LIBRARIES
from ssop_ebpf.core.ledger import Origin
from ssop_ebpf.kernel import Kernel, KernelError
from ssop_ebpf.probes import Probes
from ssop_ebpf.processes import Processes

PROBES = {probe for probes in LIBRARIES.values() for probe in probes}


class FakeKernel:
    """Attaches to whatever it is told, unless the probe is in `refused`."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.links: dict[int, tuple[str, str]] = {}
        self._next = 0

    def attach(self, probe: str, path: str) -> int:
        if probe in self.refused:
            raise KernelError(1, "refused")
        self._next += 1
        self.links[self._next] = (probe, path)
        return self._next

    def detach(self, link: int) -> None:
        del self.links[link]


class Host:
    """A folder that looks like /proc, and libraries."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.proc.mkdir()
        (self.proc / "meminfo").write_text("no process")

    def library(self, folder: Path, module: str) -> Path:
        path = folder / "ssop_codec" / f"{module}.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        return path

    def start(self, process: int, *loaded: Path, command: str = "python", start: int = 5) -> None:
        folder = self.proc / str(process)
        folder.mkdir(exist_ok=True)
        lines = [f"1-2 r-xp 0 00:01 {path.stat().st_ino} {path}\n" for path in loaded]
        (folder / "maps").write_text("".join(lines))
        (folder / "stat").write_text(f"{process} (python) S " + " ".join(["0"] * 18 + [str(start)] + ["0"] * 30))
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode())
        (folder / "cgroup").write_text("0::/system.slice/ssop-router@0.service\n")
        (folder / "root").mkdir(exist_ok=True)
        for path in loaded:
            inner = folder / "root" / str(path).removeprefix("/")
            inner.parent.mkdir(parents=True, exist_ok=True)
            inner.unlink(missing_ok=True)
            inner.hardlink_to(path)

    def end(self, process: int) -> None:
        (self.proc / str(process)).rename(self.proc / f"gone-{process}")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def make(host: Host, kernel: FakeKernel) -> Probes:
    return Probes(cast(Kernel, kernel), Processes(host.proc), host.proc, [])


def watched(kernel: FakeKernel) -> set[str]:
    return {probe for probe, _ in kernel.links.values()}


def test_a_library_that_a_process_has_loaded_is_watched_once(
    tmp_path: Path, host: Host, kernel: FakeKernel, make: Probes
) -> None:
    path = host.library(tmp_path / "venv", "_decoder")
    host.start(11, path)
    host.start(12, path)
    make.refresh()
    make.refresh()
    assert [probe for probe, _ in kernel.links.values()] == ["frame_received"]
    assert list(make.states()) == [("frame_received", str(path), True)]


def test_two_copies_of_a_library_are_both_watched(tmp_path: Path, host: Host, kernel: FakeKernel, make: Probes) -> None:
    host.start(11, host.library(tmp_path / "old", "_decoder"))
    host.start(12, host.library(tmp_path / "new", "_decoder"))
    make.refresh()
    assert len(kernel.links) == 2


def test_a_library_that_nobody_has_loaded_any_more_is_let_go(
    tmp_path: Path, host: Host, kernel: FakeKernel, make: Probes
) -> None:
    host.start(11, host.library(tmp_path / "venv", "_decoder"))
    make.refresh()
    host.end(11)
    make.refresh()
    assert kernel.links == {}


def test_a_probe_that_is_refused_is_said_and_tried_again(
    tmp_path: Path, host: Host, kernel: FakeKernel, make: Probes
) -> None:
    host.start(11, host.library(tmp_path / "venv", "_service_probes"))
    kernel.refused = {"decision"}
    make.refresh()
    make.refresh()
    assert {probe: is_watched for probe, _, is_watched in make.states()}["decision"] is False
    assert watched(kernel) == {"chunk_sent", "chunk_received", "prefetch"}
    assert make.failures["decision"] == 2
    kernel.refused = set()
    make.refresh()
    assert "decision" in watched(kernel)


def test_a_folder_is_watched_before_anybody_has_loaded_it(tmp_path: Path, host: Host, kernel: FakeKernel) -> None:
    for module in LIBRARIES:
        folder = host.library(tmp_path / "venv", module).parent
    probes = Probes(cast(Kernel, kernel), None, host.proc, [folder])
    probes.refresh()
    assert watched(kernel) == PROBES
    probes.close()
    assert kernel.links == {}


def test_a_file_that_is_replaced_in_its_folder_is_watched_anew(tmp_path: Path, host: Host, kernel: FakeKernel) -> None:
    path = host.library(tmp_path / "venv", "_decoder")
    probes = Probes(cast(Kernel, kernel), None, host.proc, [path.parent])
    probes.refresh()
    (before,) = kernel.links
    new = tmp_path / "new"
    new.write_bytes(b"")
    new.replace(path)
    probes.refresh()
    (after,) = kernel.links
    assert after != before


def test_an_old_file_is_watched_as_long_as_a_process_holds_it(tmp_path: Path, host: Host, kernel: FakeKernel) -> None:
    path = host.library(tmp_path / "venv", "_decoder")
    host.start(11, path)
    probes = Probes(cast(Kernel, kernel), Processes(host.proc), host.proc, [path.parent])
    probes.refresh()
    new = tmp_path / "new"
    new.write_bytes(b"")
    new.replace(path)
    probes.refresh()
    assert len(kernel.links) == 2


def test_no_more_libraries_are_watched_than_the_object_has_room_for(
    tmp_path: Path, host: Host, kernel: FakeKernel, make: Probes
) -> None:
    for number in range(70):
        host.start(100 + number, host.library(tmp_path / str(number), "_decoder"))
    make.refresh()
    assert len(kernel.links) == 64
    assert make.failures["frame_received"] == 6


def test_a_process_is_told_by_its_command_and_unit_until_it_has_ended(host: Host) -> None:
    processes = Processes(host.proc)
    host.start(11, command="python -m ssop_router.main")
    router = Origin("router", "ssop-router@0.service")
    assert processes.origin(11) == (router, True)
    host.end(11)
    assert processes.origin(11) == (router, False)


def test_clients_have_no_unit_of_which_there_may_be_any_number(host: Host) -> None:
    host.start(11, command="python client.py")
    assert Processes(host.proc).origin(11) == (Origin("client", ""), True)


def test_another_process_of_the_same_id_is_not_taken_for_the_first(host: Host) -> None:
    processes = Processes(host.proc)
    host.start(11, command="python -m ssop_router.main")
    processes.origin(11)
    host.start(11, command="python -m ssop_rag.main", start=9)
    assert processes.origin(11) == (Origin("router", "ssop-router@0.service"), False)
    assert processes.origin(11) == (Origin("rag", "ssop-router@0.service"), True)


def test_a_process_that_ended_unseen_was_a_client_and_one_without_an_id_stays(host: Host) -> None:
    processes = Processes(host.proc)
    assert processes.origin(99) == (Origin("client", ""), False)
    assert processes.origin(0) == (Origin("client", ""), True)
