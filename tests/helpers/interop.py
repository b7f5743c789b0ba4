"""Programs in several languages for gRPC's interop cases, against the native transport in both of its roles.

`python -m helpers.interop` builds them, runs all, and writes what came of it to docs/interop.md.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from helpers.certificates import make_authority, make_certificate
from helpers.polyglot import build_once

ROOT: Final = Path(__file__).parents[2]
HERE: Final = ROOT / "tests" / "polyglot" / "interop"
BUILD: Final = HERE / "build"
MESSAGES: Final = BUILD / "messages.bin"

RUN_TIMEOUT_S: Final = 300
CASES: Final = (
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "rpc_soak",
    "channel_soak",
)
PACKED: Final = "gzip_large_unary"
"""Not one of gRPC's: both sides compress."""
UP: Final = ("client_compressed_unary", "client_compressed_streaming")
DOWN: Final = ("server_compressed_unary", "server_compressed_streaming")
COMPRESSED: Final = (*UP, *DOWN)
"""gRPC's own about compression. They ask of each message whether it was compressed, which not every library tells."""
AGING: Final = "aging_soak"
"""Not one of gRPC's: calls go on while the server drains one connection after the other, each 100 ms."""


@dataclass(frozen=True)
class Program:
    """A client, a server or both on one implementation of gRPC. `component` is what its build needs."""

    title: str
    component: str
    client: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    language: str = ""
    client_packing: tuple[str, ...] = ()
    """Cases of COMPRESSED that its client can run."""
    server_packing: tuple[str, ...] = ()
    """Those that its server can answer."""


_PYTHON: Final = (sys.executable, "-m")
_CASES: Final = (*_PYTHON, "helpers.interop_cases")
_SERVICE: Final = (*_PYTHON, "helpers.interop_service")
_GO: Final = str(BUILD / "interop-go")
_JAVA_PATH: Final = f"{BUILD}/java/classes:{HERE.parent}/java/build/lib/*"
_JAVA: Final = ("java", "-XX:TieredStopAtLevel=1", "-cp", _JAVA_PATH, "Interop")
_RUST: Final = str(HERE.parent / "rust" / "build" / "debug" / "interop")
NATIVE: Final = Program(
    "native", "native_transport", (*_CASES, "native", str(MESSAGES)), (*_SERVICE, "native", str(MESSAGES))
)
PROGRAMS: Final[Mapping[str, Program]] = {
    "grpcio": Program(
        "grpcio",
        "native_transport",
        (*_CASES, "grpcio", str(MESSAGES)),
        (*_SERVICE, "grpc", str(MESSAGES)),
        client_packing=UP[:1],
        server_packing=DOWN,
    ),
    "grpc-go": Program("grpc-go", "go", (_GO, "client"), (_GO, "server"), "go", client_packing=(*UP[:1], *DOWN)),
    "grpc-java": Program(
        "grpc-java",
        "maven",
        (*_JAVA, "client"),
        (*_JAVA, "server"),
        "java",
        client_packing=COMPRESSED,
        server_packing=COMPRESSED,
    ),
    "grpc-js": Program(
        "grpc-js",
        "npm",
        ("node", str(HERE / "grpc-js" / "interop.cjs")),
        language="grpc-js",
        client_packing=UP[:1],
    ),
    "tonic": Program("tonic", "cargo", (_RUST,), language="rust", client_packing=UP[:1]),
}
CLIENTS: Final = tuple(PROGRAMS)
SERVERS: Final = tuple(name for name, program in PROGRAMS.items() if program.server)


def build(program: Program) -> None:
    """Build a program on first use. Raises RuntimeError with what the build said."""
    script = ["sh", str(HERE / "build_programs.sh")]
    build_once(f"interop-{program.language}", [*script, *([program.language] if program.language else [])])


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])}


@contextmanager
def serving(program: Program, files: Sequence[Path]) -> Iterator[Mapping[str, str]]:
    """Its server's addresses: `plain`, and `tls` where there are files: certificate, key, authority."""
    build(program)
    with subprocess.Popen(
        [*program.server, *map(str, files)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environ(),
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server of {program.title} does not start")
            yield json.loads(line)
        finally:
            process.kill()


def run_cases(program: Program, target: str, authority: Path | None, cases: Sequence[str]) -> dict[str, str]:
    """Its client's cases, with what went wrong: nothing is the empty string."""
    build(program)
    done = subprocess.run(
        [*program.client, target, str(authority or ""), *cases],
        capture_output=True,
        text=True,
        env=_environ(),
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    found = {line["case"]: line["error"] for line in map(json.loads, done.stdout.splitlines())}
    return {case: found.get(case, f"the client said nothing of it: {done.stderr[-500:]}") for case in cases}


@contextmanager
def certificates() -> Iterator[tuple[Path, Path, Path]]:
    """A server's certificate, its key, and the authority."""
    with TemporaryDirectory() as folder:
        authority = make_authority(Path(folder))
        own = make_certificate(Path(folder), authority)
        yield own.certificate, own.key, authority.certificate


Outcomes = Mapping[tuple[str, str], Mapping[str, str]]
"""By (program, `plain`, `tls` or `aging`): its cases, with what went wrong."""


def run_clients(names: Sequence[str]) -> Outcomes:
    """Other clients against the native server."""
    found: dict[tuple[str, str], Mapping[str, str]] = {}
    with certificates() as files, serving(NATIVE, files) as addresses:
        for name in names:
            for wire, target in addresses.items():
                cases = {"aging": (AGING,), "packed": (PACKED, *PROGRAMS[name].client_packing)}.get(wire, CASES)
                found[name, wire] = run_cases(PROGRAMS[name], target, files[2] if wire == "tls" else None, cases)
    return found


def run_servers(names: Sequence[str]) -> Outcomes:
    """The native client against other servers."""
    found: dict[tuple[str, str], Mapping[str, str]] = {}
    with certificates() as files:
        for name in names:
            with serving(PROGRAMS[name], files) as addresses:
                for wire in ("plain", "tls"):
                    found[name, wire] = run_cases(NATIVE, addresses[wire], files[2] if wire == "tls" else None, CASES)
                packing = (PACKED, *PROGRAMS[name].server_packing)
                found[name, "packed"] = run_cases(NATIVE, addresses.get("packed", addresses["plain"]), None, packing)
    return found
