"""The exporter of the kernel's view, and a copy of the codec that nobody but a test's own processes loads."""

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import ssop_codec
from helpers.live_mesh import wait_until
from ssop_cli.embedded import dump_toml

DEPLOY = Path(__file__).resolve().parents[2] / "k8s-free-deploy"
_READY_S = 60.0


@dataclass(frozen=True)
class Samples:
    """What a service's metrics say."""

    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all series of a name with these labels."""
        wanted = set(labels.items())
        return sum(value for (found, have), value in self.values.items() if found == name and wanted <= have)


def read_metrics(address: str) -> Samples:
    """All samples that `address` serves now."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        text = response.read().decode()
    return Samples(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def build_object(folder: Path) -> Path:
    """Compile the BPF object."""
    path = folder / "ssop.bpf.o"
    subprocess.run(["make", "-s", "-C", str(DEPLOY / "ebpf"), f"OUT={path}"], check=True, timeout=120)
    return path


def copy_codec(folder: Path) -> Path:
    """A copy of the codec's package, whose files are other ones to the kernel; `folder` goes on PYTHONPATH."""
    copy = folder / "ssop_codec"
    shutil.copytree(
        Path(ssop_codec.__file__).parent, copy, ignore=shutil.ignore_patterns("*.c", "*.pyx", "__pycache__")
    )
    return copy


@dataclass
class KernelView:
    """A running exporter."""

    address: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def read(self) -> Samples:
        """What it says now."""
        return read_metrics(self.address)

    def frames(self, service: str, event: str) -> float:
        """Frames that a service has counted."""
        return self.read().sum("ssop_ebpf_frames_total", service=service, event=event)


@contextmanager
def run_exporter(folder: Path, object_file: Path, codec: Path, port: int) -> Iterator[KernelView]:
    """Run `ssop-ebpf` over one copy of the codec until the block ends."""
    config = folder / "ebpf.toml"
    section = {
        "listen": f"127.0.0.1:{port}",
        "object_file": str(object_file),
        "codec_dirs": [str(codec)],
        "is_host_wide": False,
        "scan_ms": 200,
        "poll_ms": 100,
    }
    config.write_text(dump_toml({"ebpf": section}))
    log = folder / "ebpf.log"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "ssop_ebpf.main", "--config", str(config)], stdout=out, stderr=out, env=environ
        )
    view = KernelView(f"127.0.0.1:{port}", process, log)
    try:
        try:
            wait_until(lambda: _is_serving(view), _READY_S, "the exporter serves")
        except AssertionError as error:
            raise AssertionError(f"{error}; it says: {log.read_text()}") from error
        yield view
    finally:
        process.terminate()
        process.wait(30)


def _is_serving(view: KernelView) -> bool:
    assert view.process.poll() is None, view.log.read_text()
    return '"serving"' in view.log.read_text()
