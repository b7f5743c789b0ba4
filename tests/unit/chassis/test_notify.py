"""What a process says to the service manager, and what it takes from it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.eventually import eventually
from ssop_chassis.notify import Manager, take_listeners


@pytest.fixture
def manager_end(tmp_path: Path) -> Iterator[socket.socket]:
    """The manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.setblocking(False)
        yield end


def environ_of(end: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": end.getsockname(), **more}


def test_ready_comes_with_a_status_line(manager_end: socket.socket) -> None:
    Manager(environ_of(manager_end)).ready("serving at 127.0.0.1:1")
    assert manager_end.recv(4096) == b"READY=1\nSTATUS=serving at 127.0.0.1:1"


def test_a_name_in_the_abstract_namespace_is_found() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0ssop-test-{os.getpid()}")
        Manager({"NOTIFY_SOCKET": f"@ssop-test-{os.getpid()}"}).say("here")
        assert end.recv(100) == b"STATUS=here"


def test_without_a_manager_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Manager({}).ready("serving")
    assert not caplog.records


def test_a_manager_that_is_gone_is_logged_and_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Manager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("serving")
    assert "can't be told" in caplog.text


async def test_watchdog_is_fed_again_and_again(manager_end: socket.socket) -> None:
    manager = Manager(environ_of(manager_end, WATCHDOG_USEC="30000", WATCHDOG_PID=str(os.getpid())))
    fed = 0

    def is_fed_thrice() -> bool:
        nonlocal fed
        try:
            fed += manager_end.recv(100) == b"WATCHDOG=1"
        except BlockingIOError:
            return False
        return fed >= 3

    async with manager.watched():
        await eventually(is_fed_thrice, 30)


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}]
)
def test_no_watchdog_is_no_watchdog(manager_end: socket.socket, watchdog: dict[str, str]) -> None:
    assert Manager(environ_of(manager_end, **watchdog)).watchdog_s == 0


def test_sockets_for_another_process_are_left_alone() -> None:
    assert take_listeners({"LISTEN_FDS": "1", "LISTEN_PID": "1"}) == []


def test_sockets_of_the_manager_are_taken() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        code = (
            "import os; from ssop_chassis.notify import take_listeners;"
            "taken, = take_listeners({'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())});"
            "print(taken.getsockname()[1])"
        )
        made = subprocess.run(
            [sys.executable, "-c", code],
            # As systemd does: the socket is number 3.
            preexec_fn=lambda: os.dup2(listener.fileno(), 3),
            close_fds=False,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert made.stdout.split() == [str(listener.getsockname()[1])], made.stderr
