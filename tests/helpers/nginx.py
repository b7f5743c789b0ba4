"""The front of `k8s-free-deploy/nginx` as a process of the test: the shipped nginx.conf, with places in a folder."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ssop_cli.leash
from helpers.eventually import eventually
from ssop_cli.embedded import free_port

SHIPPED: Final = Path(__file__).parents[2] / "k8s-free-deploy" / "nginx" / "nginx.conf"
LIMIT_S: Final = 60.0
_TLS: Final = """
listen 127.0.0.1:{port} ssl http2;
ssl_certificate {folder}/front.pem;
ssl_certificate_key {folder}/front.key;
"""


@dataclass
class Front:
    """A running nginx. `folder` holds its configuration; `front.pem` there is its certificate."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """What clients trust."""
        return self.folder / "front.pem"

    def workers(self) -> set[int]:
        """Process ids of its workers, those that finish included."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(pid) for pid in path.read_text().split()}

    async def reload(self) -> None:
        """Reload, and return when new workers are there."""
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        await eventually(lambda: bool(self.workers() - before), LIMIT_S)


def write_front(
    folder: Path,
    port: int,
    *,
    routers: Sequence[str],
    gateway: str = "127.0.0.1:1",
    opinion: str = "127.0.0.1:1",
    changes: Mapping[str, str] | None = None,
    listen: str = "",
    to_routers: str = "grpc_pass grpc://ssop_routers;",
) -> Path:
    """Write the shipped configuration for a folder; `changes` are texts of it and what stands there instead."""
    text = SHIPPED.read_text()
    for old, new in {
        "/etc/ssop/nginx": str(folder),
        "/run/ssop-nginx": str(folder),
        "/var/lib/ssop-nginx": str(folder),
        # It is this test's user; as root nginx would else become nobody, who can't enter the folder.
        "worker_processes auto;": "worker_processes 1;" + (" user root;" if os.geteuid() == 0 else ""),
        **(changes or {}),
    }.items():
        assert old in text, f"the shipped nginx.conf has no '{old}'"
        text = text.replace(old, new)
    servers = "".join(f"    server {address} max_fails=2 fail_timeout=2s;\n" for address in routers)
    (folder / "upstreams.conf").write_text(
        f"upstream ssop_routers {{\n    zone r 128k;\n    least_conn;\n{servers}    keepalive 16;\n}}\n"
        f"upstream ssop_gateways {{\n    server {gateway};\n    keepalive 16;\n}}\n"
        f"upstream ssop_opinion {{\n    server {opinion};\n}}\n"
    )
    (folder / "to-routers.conf").write_text(to_routers)
    (folder / "listen.conf").write_text(_TLS.format(port=port, folder=folder) + listen)
    config = folder / "nginx.conf"
    config.write_text(text)
    return config


def make_certificate(folder: Path, name: str) -> None:
    """A self-signed certificate for localhost, `name`.pem, and its key, `name`.key."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)


@asynccontextmanager
async def run_front(folder: Path, **options: object) -> AsyncIterator[Front]:
    """Run nginx until the block ends; the options are those of `write_front`."""
    if not (folder / "front.pem").exists():
        make_certificate(folder, "front")
    port = free_port()
    config = write_front(folder, port, **options)  # type: ignore[arg-type]
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [sys.executable, ssop_cli.leash.__file__, str(os.getpid()), nginx, "-e", "stderr", "-c", str(config)]
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    front = Front(folder, port, process)

    def is_listening() -> bool:
        assert process.poll() is None, (folder / "nginx.log").read_text()
        return bool(front.workers()) and (folder / "routers.sock").exists()

    try:
        await eventually(is_listening, LIMIT_S)
        yield front
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, LIMIT_S)
