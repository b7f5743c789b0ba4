"""What is read out of /proc."""

import pytest

from ssop_ebpf.core.host import find_libraries, service_of, start_of, unit_of

MAPS = """\
55a0-55b0 r-xp 00000000 fe:00 11 /usr/bin/python3.11
7f00-7f10 r-xp 00000000 fe:00 77 /opt/a b/ssop_codec/_decoder.cpython-311-x86_64-linux-gnu.so
7f10-7f20 rw-p 00001000 fe:00 77 /opt/a b/ssop_codec/_decoder.cpython-311-x86_64-linux-gnu.so
7f20-7f30 r-xp 00000000 fe:00 78 /opt/a b/ssop_codec/_frame_writer.cpython-311-x86_64-linux-gnu.so (deleted)
7f30-7f40 r-xp 00000000 fe:00 79 /opt/a b/ssop_codec/_reader.cpython-311-x86_64-linux-gnu.so
7f40-7f50 rw-p 00000000 00:00 0
7f50-7f60 rw-p 00000000 00:00 0 [stack]
"""


def test_libraries_with_probes_are_found_once_each_even_when_their_file_was_replaced() -> None:
    found = list(find_libraries(MAPS))
    assert [(library.inode, library.module) for library in found] == [(77, "_decoder"), (78, "_frame_writer")]
    assert found[1].path == "/opt/a b/ssop_codec/_frame_writer.cpython-311-x86_64-linux-gnu.so"


def test_text_that_is_no_map_holds_no_library() -> None:
    assert list(find_libraries("")) == []
    assert list(find_libraries("\n \nx y\n/ssop_codec/_decoder.so")) == []


@pytest.mark.parametrize(
    ("command", "service"),
    [
        (b"/opt/ssop/bin/python\0-m\0ssop_router.main\0--config\0/etc/ssop/ssop.toml\0", "router"),
        (b"/opt/ssop/bin/python\0/opt/ssop/bin/ssop-inference\0--config\0x\0", "inference"),
        (b"/opt/ssop/bin/ssop-gateway\0", "gateway"),
        (b"python\0-m\0ssop_cli.main\0up\0", "client"),
        (b"python\0-m\0ssop_router.maintenance\0", "client"),
        (b"vi\0notes\0ssop-router\0", "client"),
        (b"", "client"),
        (b"\xff\xfe\0-m\0", "client"),
    ],
)
def test_services_are_told_by_their_command_line(command: bytes, service: str) -> None:
    assert service_of(command) == service


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/ssop-inference@0.service\n", "ssop-inference@0.service"),
        ("3:memory:/x\n1:name=systemd:/ssop.slice/ssop-router.service/inner\n", "ssop-router.service"),
        ("0::/user.slice/user-0.slice/session-2.scope", ""),
        ("0::/\n", ""),
        ("", ""),
        ("garbage", ""),
    ],
)
def test_units_are_told_by_their_group(cgroup: str, unit: str) -> None:
    assert unit_of(cgroup) == unit


def test_the_name_of_a_program_does_not_shift_the_time_it_began() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert start_of(f"7 (a) b) (c) S {fields}") == start_of(f"7 (python) S {fields}") == 22
