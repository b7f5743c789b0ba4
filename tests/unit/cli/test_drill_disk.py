"""A disk that is full for one process only."""

import subprocess
import sys
from pathlib import Path

from ssop_cli.drill.disk import Disk, open_disk
from ssop_cli.drill.trials import flip_files

WRITER = """
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1], "ab") as file:
            file.write(b"x")
        print("written", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


def answers(folder: Path, disk: Disk) -> list[str]:
    """What another process says of writing there: before, while the disk is full, and after."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder / "file")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            return process.stdout.readline().strip()

        found = [ask()]
        with disk.filled(process.pid):
            found.append(ask())
        found.append(ask())
        process.stdin.close()
    return found


def test_limit_on_a_process_stops_its_writes_and_is_lifted(tmp_path: Path) -> None:
    disk = Disk(tmp_path, is_mounted=False)
    before, during, after = answers(tmp_path, disk)
    assert (before, during != "written", after) == ("written", True, "written")
    assert "RLIMIT_FSIZE" in disk.means


def test_disk_is_gone_afterwards(tmp_path: Path) -> None:
    with open_disk(tmp_path / "disk") as disk:
        assert disk.folder.is_dir()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_byte_in_the_middle_of_each_file_is_inverted(tmp_path: Path) -> None:
    for name in ("1.sst", "2.log", "3.log", "MANIFEST-1"):
        (tmp_path / name).write_bytes(b"" if name == "3.log" else b"abcde")
    assert sorted(flip_files(tmp_path)) == ["1.sst", "2.log"]
    assert (tmp_path / "1.sst").read_bytes() == b"ab\x9cde"
    assert (tmp_path / "MANIFEST-1").read_bytes() == b"abcde"
