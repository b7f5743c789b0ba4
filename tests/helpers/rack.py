"""Hosts of the example inventory as network namespaces behind a lossy switch, each with the services of its folder.

What is read is what ships: `ssop.toml`, `instances/*.env`, `roles`, the front's files. Only places of files are others,
and models are replayed. One more host, `client`, is that of the clients. Needs root.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import ssop_cli.leash
from helpers.certificates import Files, make_authority, make_certificate
from helpers.child_environ import child_environ
from helpers.live_mesh import wait_until
from helpers.log_lines import read_log
from helpers.lossy_switch import LossySwitch, start_switch
from helpers.nginx import write_front
from helpers.redis_server import RedisServer, redis_pair
from helpers.router_process import keys_text
from helpers.scripted_mesh import SECRET, Keys
from helpers.service_forks import Forks, Order, service_forks
from helpers.two_hosts import run

INVENTORY: Final = Path(__file__).resolve().parents[2] / "k8s-free-deploy" / "inventory" / "four-hosts"
HOSTS: Final = ("host-1", "host-2", "host-3", "host-4")
CLIENT: Final = "client"
_NETWORK: Final = "10.0.0."
_NUMBERS: Final = {name: 11 + number for number, name in enumerate(HOSTS)} | {CLIENT: 100}
_READY_S: Final = 120.0
_NAMES: Final = "DNS:mesh.internal"
_LOOK_AGAIN_S: Final = 1.2
_SHOW_SERIAL: Final = "openssl s_client -connect $0 </dev/null 2>/dev/null | openssl x509 -noout -serial"
_WITHOUT_IPV6: Final = "for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e $file ] || echo 1 >$file; done"
"""It sends frames of its own, at its own times."""
_OFFLOADS: Final = ("rx", "tx", "tso", "gso", "gro")
ANSWER: Final = {"mood": "good", "ok": True}
TOKEN_MS: Final = 60
RECORDING: Final = {
    "tokens": [[TOKEN_MS, text] for text in ('{"mo', 'od": "go', 'od", "o', 'k": tr', "ue}")],
    "stop": "end",
    "input_tokens": 12,
}


def address_of(host: str, port: int) -> str:
    """Where a port of a host is."""
    return f"{_NETWORK}{_NUMBERS[host]}:{port}"


@dataclass
class RackHost:
    """A namespace with its services. `pids` are those that were started last, by the name of the instance."""

    name: str
    namespace: str
    folder: Path
    pids: dict[str, int] = field(default_factory=dict)
    front: "subprocess.Popen[bytes] | None" = None

    def inside(self, *command: str) -> list[str]:
        """A command line that runs on this host."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *command]

    @property
    def roles(self) -> set[str]:
        """What the inventory gives it to do."""
        return set((INVENTORY / self.name / "roles").read_text().split())

    def log(self, instance: str) -> list[dict[str, Any]]:
        """Lines of an instance's log, of all its processes."""
        return read_log(self.folder / f"{instance}.log")

    def kill(self) -> None:
        """Everything on it ends as where the power is cut."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
        self.pids.clear()
        if self.front is not None:
            # Its workers notice that their master is gone by a socket, later.
            children = Path(f"/proc/{self.front.pid}/task/{self.front.pid}/children").read_text().split()
            for pid in [self.front.pid, *map(int, children)]:
                os.kill(pid, signal.SIGKILL)
            self.front.wait()
            self.front = None


@dataclass
class Rack:
    """The hosts, the switch between them, and what clients need.

    `redis` are the state and the cache instance, `authorities` that of now and the one after `rotate`.
    """

    folder: Path
    hosts: dict[str, RackHost]
    client: RackHost
    switch: LossySwitch
    forks: Forks
    redis: tuple[RedisServer, RedisServer]
    key: str
    authorities: tuple[Files, Files]
    certificate: Files

    @property
    def ca(self) -> Path:
        """Whom the mesh's services believe."""
        return self.folder / "mesh-ca.pem"

    @property
    def client_ca(self) -> Path:
        """Whom clients believe: the authority of now, and the one that comes after it."""
        return self.folder / "client-ca.pem"

    @property
    def routers(self) -> list[str]:
        """Addresses of the routers of these hosts."""
        return [address_of(name, 7300) for name, host in self.hosts.items() if "router" in host.roles]

    def start(self, name: str) -> None:
        """Start the services that the inventory gives a host."""
        host = self.hosts[name]
        config = self._write_settings(host)
        instances = {path.stem: path for path in sorted((INVENTORY / name / "instances").glob("*.env"))}
        if "edge" in host.roles:
            self._start_front(host)
            instances["gateway"] = Path(os.devnull)
        for instance, path in instances.items():
            environ = dict(line.split("=", 1) for line in path.read_text().splitlines() if line)
            environ["CREDENTIALS_DIRECTORY"] = str(self.folder)
            if "SSOP_INFERENCE_MODELS" in environ:
                environ["SSOP_INFERENCE_MODELS"] = _replayed(environ["SSOP_INFERENCE_MODELS"], self.folder)
            log = str(host.folder / f"{instance}.log")
            order = Order(instance.partition("-")[0], str(config), log, host.namespace, environ)
            host.pids[instance] = self.forks.start(order)

    def _write_settings(self, host: RackHost) -> Path:
        text = (INVENTORY / host.name / "ssop.toml").read_text()
        for shipped, here in self._places(host).items():
            assert shipped in text, f"the inventory does not say {shipped}"
            text = text.replace(shipped, here)
        path = host.folder / "ssop.toml"
        path.write_text(text)
        return path

    def _places(self, host: RackHost) -> dict[str, str]:
        state, cache = self.redis
        return {
            "/etc/ssop/tls/host.pem": f"{self.folder}/mesh.pem",
            "/etc/ssop/tls/host.key": f"{self.folder}/mesh.key",
            "/etc/ssop/tls/mesh-ca.pem": str(self.ca),
            "/etc/ssop/keys.toml": f"{self.folder}/keys.toml",
            "unix:///run/ssop-redis-cache/redis.sock": cache.url,
            "unix:///run/ssop-redis-state/redis.sock": state.url,
            "/var/lib/ssop-cache/answers": f"{host.folder}/answers",
            "/var/lib/ssop-rag/index": f"{host.folder}/index",
            "/run/ssop-nginx": str(host.folder),
        }

    def _start_front(self, host: RackHost) -> None:
        if not (host.folder / "front.pem").exists():
            make_certificate(host.folder, self.authorities[0], "front", "DNS:localhost")
        config = write_front(host.folder, 443, routers=[])
        shipped = INVENTORY / host.name
        (host.folder / "upstreams.conf").write_text((shipped / "upstreams.conf").read_text())
        text = (shipped / "to-routers.conf").read_text().replace("/etc/ssop/tls/mesh-ca.pem", str(self.ca))
        (host.folder / "to-routers.conf").write_text(text)
        listen = (host.folder / "listen.conf").read_text().replace("127.0.0.1:", f"{_NETWORK}{_NUMBERS[host.name]}:")
        (host.folder / "listen.conf").write_text(listen)
        with (host.folder / "nginx.log").open("ab") as log:
            nginx = shutil.which("nginx") or "/usr/sbin/nginx"
            leash = (sys.executable, ssop_cli.leash.__file__, str(os.getpid()))
            command = host.inside(*leash, nginx, "-e", "stderr", "-c", str(config))
            host.front = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)

    def fronts(self) -> dict[str, RackHost]:
        """The hosts with a front."""
        return {name: host for name, host in self.hosts.items() if host.front is not None}

    def serial(self, address: str) -> str:
        """The number of the certificate that is shown at an address."""
        shown = run(*self.client.inside("sh", "-c", _SHOW_SERIAL, address))
        assert shown.startswith("serial="), shown
        return shown.strip()

    def rotate(self) -> None:
        """Another authority, and other certificates of services and fronts, in the order of docs/tls.md."""
        old, new = (authority.certificate.read_text() for authority in self.authorities)
        self._trust(old + new)
        fresh = self.folder / "fresh"
        fresh.mkdir()
        self.certificate.replace(make_certificate(fresh, self.authorities[1], "mesh", _NAMES))
        for name, host in self.fronts().items():
            made = make_certificate(fresh, self.authorities[1], f"front-{name}", "DNS:localhost")
            Files(host.folder / "front.key", host.folder / "front.pem").replace(made)
        self._settle()
        self._trust(new)

    def _trust(self, authorities: str) -> None:
        fresh = self.ca.with_suffix(".fresh")
        fresh.write_text(authorities)
        fresh.replace(self.ca)
        self._settle()

    def _settle(self) -> None:
        """What `systemctl reload ssop-nginx` does, on each front; and the second that services may take."""
        for host in self.fronts().values():
            assert host.front is not None
            host.front.send_signal(signal.SIGHUP)
        # A process looks at its files once a second at most.
        time.sleep(_LOOK_AGAIN_S)

    def wait_ready(self, *names: str) -> None:
        """Every service of these hosts serves."""

        def is_ready() -> bool:
            for name in names:
                host = self.hosts[name]
                for instance, pid in host.pids.items():
                    assert Path(f"/proc/{pid}").exists(), (host.folder / f"{instance}.log").read_text()[-3000:]
            logs = [self.hosts[name].folder / f"{i}.log" for name in names for i in self.hosts[name].pids]
            return all(log.exists() and _says_ready(log) for log in logs)

        wait_until(is_ready, _READY_S, f"{names} serve")

    def records(self) -> dict[str, int]:
        """How many terminal records there are of each request, over all routers."""
        found: dict[str, int] = {}
        for host in self.hosts.values():
            if "router" in host.roles:
                for line in host.log("router-0"):
                    if line.get("message") == "request":
                        found[line["request_id"]] = found.get(line["request_id"], 0) + 1
        return found


def _says_ready(log: Path) -> bool:
    """Whether the last process that wrote to a log is ready. A gateway says `serving` alone."""
    said = re.findall(r'"message": ?"(ready|serving|draining|stopped)"', log.read_text())
    return bool(said) and (said[-1] == "ready" or log.stem == "gateway")


def _replayed(models: str, folder: Path) -> str:
    """The inventory's models, with their tiers and slots, of the backend `replay`."""
    path = folder / "recording.jsonl"
    kept = [{"name": m["name"], "tiers": m["tiers"], "slots": m["slots"]} for m in json.loads(models)]
    return json.dumps([model | {"backend": "replay", "path": str(path)} for model in kept])


class RackClient:
    """`helpers.rack_client` on the host of the clients."""

    def __init__(self, rack: Rack) -> None:
        environ = child_environ() | {"SSOP_TEST_KEY": rack.key}
        command = rack.client.inside(sys.executable, "-m", "helpers.rack_client")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, do: str, **words: Any) -> Any:
        """Have it do something; what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the client has ended"
        return json.loads(answer)


@contextmanager
def run_rack(folder: Path, names: Sequence[str] = HOSTS, *, seed: int = 1) -> Iterator[Rack]:
    """Run these hosts of the inventory, all services started, until the block ends. The weather is fair."""
    tag = f"ssop-{os.getpid() % 100_000}"
    authorities = make_authority(folder, "first-ca"), make_authority(folder, "second-ca")
    both = [authority.certificate.read_text() for authority in authorities]
    (folder / "mesh-ca.pem").write_text(both[0])
    (folder / "client-ca.pem").write_text("".join(both))
    certificate = make_certificate(folder, authorities[0], "mesh", _NAMES)
    key = Keys().of()
    (folder / "keys.toml").write_text(keys_text(key))
    (folder / "mesh_secret").write_text(SECRET.hex())
    (folder / "recording.jsonl").write_text(json.dumps(RECORDING) + "\n")
    with ExitStack() as stack:
        middle = RackHost("switch", f"{tag}-switch", folder)
        _add_namespace(stack, middle)
        hosts = {name: RackHost(name, f"{tag}-{name}", folder / name) for name in (*names, CLIENT)}
        for host in hosts.values():
            host.folder.mkdir()
            _add_namespace(stack, host)
            _wire(host, middle)
        client = hosts.pop(CLIENT)
        switch = start_switch(middle.inside(), seed, [*names, CLIENT])
        stack.callback(switch.stop)
        redis = stack.enter_context(redis_pair())
        forks = stack.enter_context(service_forks(folder / "forks.log"))
        rack = Rack(folder, hosts, client, switch, forks, redis, key, authorities, certificate)
        for host in hosts.values():
            stack.callback(host.kill)
        for name in names:
            rack.start(name)
        rack.wait_ready(*names)
        yield rack


def _add_namespace(stack: ExitStack, host: RackHost) -> None:
    run("ip", "netns", "add", host.namespace)
    stack.callback(run, "ip", "netns", "del", host.namespace)
    run(*host.inside("sh", "-c", _WITHOUT_IPV6))
    run("ip", "-n", host.namespace, "link", "set", "lo", "up")


def _wire(host: RackHost, middle: RackHost) -> None:
    """A wire from a host to the switch, whose end there has the host's name."""
    ends = ["type", "veth", "peer", "name", host.name, "netns", middle.namespace]
    run("ip", "link", "add", "eth0", "netns", host.namespace, *ends)
    run("ip", "-n", host.namespace, "addr", "add", f"{_NETWORK}{_NUMBERS[host.name]}/24", "dev", "eth0")
    for end, wire in ((host, "eth0"), (middle, host.name)):
        run("ip", "-n", end.namespace, "link", "set", wire, "up")
        # What no hardware does here must not be left to it.
        run(*end.inside("ethtool", "-K", wire, *[word for name in _OFFLOADS for word in (name, "off")]))
