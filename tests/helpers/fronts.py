"""The DPDK front and the XDP guard on the server of two hosts, and nginx behind them."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from helpers.live_mesh import wait_until
from helpers.two_hosts import SERVER, TwoHosts, run

DEPLOY: Final = Path(__file__).resolve().parents[2] / "k8s-free-deploy"
BPFFS: Final = Path("/sys/fs/bpf")
_NGINX: Final = """
user root; daemon off; error_log {folder}/error.log; pid {folder}/pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen {address}:7300 http2;
    client_max_body_size 0; client_body_timeout 1h; grpc_read_timeout 1h; grpc_send_timeout 1h;
    location / {{ grpc_pass grpc://unix:{router}; }}
  }}
}}
"""


def build(part: str, folder: Path) -> Path:
    """Build `dpdk` or `xdp` into a folder of its own; returns that."""
    run("make", "-s", "-C", str(DEPLOY / part), f"BUILD={folder / part}")
    return folder / part


def counters(text: str) -> dict[str, int]:
    """Values of Prometheus text by name, or by verdict where there is one."""
    found: dict[str, int] = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\d+)$", text, re.MULTILINE):
        verdict = re.search(r'verdict="(\w+)"', labels)
        found[verdict[1] if verdict else name] = int(value)
    return found


@contextmanager
def running_front(hosts: TwoHosts, built: Path, *limits: str, taps: int = 2) -> Iterator[str]:
    """Run the front on the server's wire, through taps that get its address; yields the prefix of its files."""
    prefix = f"ssop-test-{os.getpid()}"
    devices = [f"--vdev=net_tap{number},iface=dtap{number},mac=fixed" for number in range(taps)]
    eal = ["-l", "0", "--no-huge", "-m", "256", "--no-pci", f"--vdev=net_af_packet0,iface={hosts.server_wire}"]
    command = [str(built / "ssop-front"), f"--file-prefix={prefix}", *eal, *devices, "--", "--idle-us", "50", *limits]
    log = built / "front.log"
    with log.open("wb") as output:
        front = subprocess.Popen(hosts.on_server(*command), stdout=output, stderr=output)
    try:
        wait_until(lambda: b"forwarding" in log.read_bytes() or front.poll() is not None, 60, "the front runs")
        assert front.poll() is None, log.read_text()
        run(*hosts.on_server(str(DEPLOY / "dpdk" / "ssop-front-net"), hosts.server_wire, f"{SERVER}/24"))
        yield prefix
    finally:
        front.terminate()
        front.wait(30)


def front_counters(prefix: str) -> dict[str, int]:
    """What the front says of itself."""
    return counters(run(str(DEPLOY / "dpdk" / "ssop-front-stats"), "--prefix", prefix))


@contextmanager
def mounted_bpffs() -> Iterator[None]:
    """Pins need the BPF file system, which a container may lack."""
    has_it = any(line.split()[1] == str(BPFFS) for line in Path("/proc/mounts").read_text().splitlines())
    if not has_it:
        run("mount", "-t", "bpf", "bpf", str(BPFFS))
    try:
        yield
    finally:
        if not has_it:
            run("umount", str(BPFFS))


@contextmanager
def running_nginx(hosts: TwoHosts, folder: Path, router: Path) -> Iterator[str]:
    """nginx on the server, in front of a router's unix socket; yields what clients connect to."""
    folder.mkdir()
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, address=SERVER, router=router))
    nginx = subprocess.Popen(hosts.on_server("nginx", "-e", str(folder / "start.log"), "-c", str(config)))
    try:
        wait_until((folder / "pid").exists, 30, "nginx runs")
        yield f"{SERVER}:7300"
    finally:
        nginx.terminate()
        nginx.wait(30)
