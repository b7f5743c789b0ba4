"""Instructions are counted where they are carried out, and nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.instructions import Counter, missing_counter

pytestmark = [pytest.mark.skipif(bool(missing_counter()), reason=missing_counter()), pytest.mark.timeout(300)]
_PROGRAM = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        pass
    print("done", flush=True)
"""


def test_twice_the_work_is_twice_the_instructions(tmp_path: Path) -> None:
    counter = Counter(tmp_path)
    command = counter.command(sys.executable, "-c", _PROGRAM)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def turn(rounds: int) -> None:
            process.stdin.write(f"{rounds}\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            assert process.stdout.readline() == "done\n"  # type: ignore[union-attr]

        assert process.stdout.readline() == "ready\n"
        turn(50_000)
        found = []
        for rounds in (50_000, 100_000):
            with counter.counting(process.pid) as count:
                turn(rounds)
            found.append(count.instructions)
        # The clock of what is not counted is none of it.
        turn(1_000_000)
        with counter.counting(process.pid) as nothing:
            pass
        process.stdin.close()
    assert found[1] == pytest.approx(2 * found[0], rel=0.1)
    assert nothing.instructions < found[0] / 5


def test_interpreter_counts_the_module_that_it_was_made_for(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    counter = Counter(tmp_path)
    command = [str(counter.interpreter("counted")), "-m", "counted"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        with counter.counting(process.pid) as count:
            pass
        process.kill()
    assert count.seconds < 600
