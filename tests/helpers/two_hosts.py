"""Two network namespaces with a wire between them, for what stands in front of a mesh. Needs root."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

CLIENT: Final = "10.78.0.1"
SERVER: Final = "10.78.0.2"


@dataclass(frozen=True, slots=True)
class TwoHosts:
    """Names of the namespaces, and of the interface that each has on the wire."""

    client: str
    server: str
    client_wire: str
    server_wire: str

    def on_client(self, *command: str) -> list[str]:
        """A command line that runs on the client's host."""
        return _inside(self.client, command)

    def on_server(self, *command: str) -> list[str]:
        """A command line that runs on the server's host."""
        return _inside(self.server, command)


def run(*command: str) -> str:
    """Run a command that has to succeed; returns its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
    return done.stdout


@contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Two hosts with CLIENT and SERVER as their addresses, until the block ends."""
    tag = f"{os.getpid() % 100_000}"
    hosts = TwoHosts(f"ssop-c{tag}", f"ssop-s{tag}", f"vc{tag}", f"vs{tag}")
    with ExitStack() as stack:
        for name in (hosts.client, hosts.server):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)
        ends = ["type", "veth", "peer", "name", hosts.server_wire, "netns", hosts.server]
        run("ip", "link", "add", hosts.client_wire, "netns", hosts.client, *ends)
        for name, wire, address in (
            (hosts.client, hosts.client_wire, CLIENT),
            (hosts.server, hosts.server_wire, SERVER),
        ):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", wire)
            run("ip", "-n", name, "link", "set", wire, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            # Between veths a checksum is left to hardware that is not there; programs below the kernel see it.
            run(*_inside(name, ["ethtool", "-K", wire, "rx", "off", "tx", "off", "tso", "off", "gso", "off"]))
        yield hosts


def _inside(name: str, command: Sequence[str]) -> list[str]:
    # Not `ip netns exec`, which hides the mounts below /sys.
    return ["nsenter", f"--net=/run/netns/{name}", "--", *command]
