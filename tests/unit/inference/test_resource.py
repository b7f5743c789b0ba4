from pathlib import Path

import pytest
from pydantic import ValidationError

from ssop_inference.resource import read_memory
from ssop_inference.settings import InferenceSettings

MIB = 1 << 20


def machine(tmp_path: Path, cgroup_line: str = "0::/svc") -> tuple[Path, Path]:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 8192 kB\nMemFree: 1 kB\nMemAvailable: 4096 kB\n")
    (proc / "self/cgroup").write_text(cgroup_line + "\n")
    (cgroups / "svc").mkdir(parents=True)
    (cgroups / "memory/svc").mkdir(parents=True)
    return proc, cgroups


def test_host_memory_counts_where_no_cgroup_limits(tmp_path: Path) -> None:
    memory = read_memory(*machine(tmp_path))
    assert (memory.free_bytes, memory.total_bytes, memory.oom_count) == (4 * MIB, 8 * MIB, 0)


@pytest.mark.parametrize("said", ["", "MemTotal: 8192 kB\n", "MemFree: 1 kB\nMemAvailable: 1 kB\n"])
def test_memory_that_the_kernel_does_not_name_is_not_taken_for_none(tmp_path: Path, said: str) -> None:
    proc, cgroups = machine(tmp_path)
    (proc / "meminfo").write_text(said)
    with pytest.raises(OSError, match="meminfo"):
        read_memory(proc, cgroups)


def test_cgroup_limit_counts_with_what_the_kernel_can_take_back(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path)
    (cgroups / "svc/memory.max").write_text(f"{3 * MIB}\n")
    (cgroups / "svc/memory.current").write_text(f"{2 * MIB}\n")
    (cgroups / "svc/memory.stat").write_text(f"anon 1\ninactive_file {MIB // 2}\n")
    (cgroups / "svc/memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    memory = read_memory(proc, cgroups)
    assert (memory.free_bytes, memory.total_bytes, memory.oom_count) == (3 * MIB // 2, 3 * MIB, 2)


def test_tighter_limit_of_a_parent_counts(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path)
    for folder, limit in ((cgroups, 2 * MIB), (cgroups / "svc", 3 * MIB)):
        (folder / "memory.max").write_text(str(limit))
        (folder / "memory.current").write_text("0")
    assert read_memory(proc, cgroups).total_bytes == 2 * MIB


def test_unlimited_cgroup_is_the_host(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path)
    (cgroups / "svc/memory.max").write_text("max\n")
    assert read_memory(proc, cgroups).total_bytes == 8 * MIB


def test_version_1_of_cgroups_is_read(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path, "4:memory:/svc")
    (cgroups / "memory/svc/memory.limit_in_bytes").write_text(str(3 * MIB))
    (cgroups / "memory/svc/memory.usage_in_bytes").write_text(str(MIB))
    assert read_memory(proc, cgroups).free_bytes == 2 * MIB


def test_kills_for_memory_are_read_from_version_1_too(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path, "4:memory:/svc")
    (cgroups / "memory/svc/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert read_memory(proc, cgroups).oom_count == 3


def test_this_machine_has_memory() -> None:
    memory = read_memory()
    assert 0 < memory.free_bytes <= memory.total_bytes


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="same name"):
        InferenceSettings.model_validate({"models": [{"name": "a"}, {"name": "a"}]})


def test_default_model_serves_both_tiers() -> None:
    assert InferenceSettings().models[0].tiers == ("lite", "full")


def test_engine_leaves_a_core_free() -> None:
    assert InferenceSettings().engine_threads >= 1
    assert InferenceSettings(threads=3).engine_threads == 3
