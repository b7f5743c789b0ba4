"""Redis as it is deployed to stay up: a master with replicas and sentinels, and a cluster. Real processes."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from helpers.redis_server import BINARIES, START_S, make_folder
from ssop_cache.redis_process import Role, redis_command
from ssop_cli.embedded import free_port

MASTER: Final = "mesh-state"
DOWN_AFTER_MS: Final = 700
NODE_TIMEOUT_MS: Final = 1_500
HOST: Final = "127.0.0.1"


class TcpServer:
    """One instance on a port of the loopback, with the settings of a role and whatever is added."""

    def __init__(self, folder: Path, binary: Path, role: Role, *options: str) -> None:
        self.port = free_port()
        self.folder = folder / str(self.port)
        self.folder.mkdir()
        command = redis_command(binary, role, self.folder, self.folder / "r.sock", 32)
        self._command = [*command, "--port", str(self.port), "--bind", HOST, *options]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start it; on what it left on disk."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def ask(self, *words: str | bytes | int) -> Any:
        """A command, on a connection of its own."""
        with redis.Redis(host=HOST, port=self.port, socket_timeout=5, retry=Retry(NoBackoff(), 0)) as client:
            return client.execute_command(*words)

    def is_serving(self) -> bool:
        """It answers."""
        try:
            return bool(self.ask("PING"))
        except redis.RedisError:
            return False

    def info(self, section: str) -> dict[str, Any]:
        """What it says of itself."""
        return dict(self.ask("INFO", section))

    def signal(self, number: int) -> None:
        """SIGSTOP, SIGCONT, SIGKILL."""
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()
            self.process = None

    def end(self) -> None:
        """kill -9, where it runs."""
        if self.process is not None:
            self.signal(signal.SIGKILL)


def wait_until(predicate: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
    """Return when it holds."""
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline_s, f"did not come within {timeout_s} s: {what}"
        time.sleep(0.02)


class Group:
    """Servers that end together; use it in `with`."""

    def __init__(self, version: str) -> None:
        self.binary = BINARIES[version]()
        self.folder = make_folder("ssop-group-")
        self.servers: list[TcpServer] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start all, and wait until they know each other."""
        raise NotImplementedError

    def add(self, role: Role, *options: str) -> TcpServer:
        """One more server, started."""
        server = TcpServer(self.folder, self.binary, role, *options)
        self.servers.append(server)
        server.start()
        return server


class SentinelGroup(Group):
    """A master, replicas, three sentinels; the master takes writes only while a replica is there to hear them."""

    def __init__(self, version: str = "valkey_9_1", *, role: Role = "state", replicas: int = 2) -> None:
        super().__init__(version)
        self._role: Role = role
        self._replicas = replicas
        self.sentinels: list[TcpServer] = []

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the cache service for the state."""
        return {
            "state_mode": "sentinel",
            "state_url": "",
            "state_nodes": [sentinel.address for sentinel in self.sentinels],
            "state_master": MASTER,
        }

    @property
    def master(self) -> TcpServer:
        """Who is to take writes, by the word of most sentinels; one that thawed thinks so too for some seconds."""
        named = [sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER) for sentinel in self.sentinels]
        ports = [int(address[1]) for address in named]
        port = max(ports, key=ports.count)
        return next(server for server in self.servers if server.port == port)

    def start(self) -> None:
        """Start all, and wait until they know each other."""
        durable = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2", "--repl-diskless-sync-delay", "0")
        master = self.add(self._role, *durable)
        wait_until(master.is_serving, "the master")
        for _ in range(self._replicas):
            self.add(self._role, *durable, "--replicaof", f"{HOST} {master.port}")
        wait_until(lambda: master.info("replication").get("connected_slaves") == self._replicas, "the replicas")
        wait_until(lambda: all(_is_online(master, n) for n in range(self._replicas)), "the replicas are in step")
        for _ in range(3):
            sentinel = TcpServer(self.folder, self.binary, "cache")
            path = sentinel.folder / "sentinel.conf"
            path.write_text(
                f"port {sentinel.port}\nbind {HOST}\ndir {sentinel.folder}\n"
                f"sentinel monitor {MASTER} {HOST} {master.port} 2\n"
                f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {MASTER} 3000\n"
            )
            sentinel.process = subprocess.Popen([str(self.binary), str(path), "--sentinel"], stdout=subprocess.DEVNULL)
            self.sentinels.append(sentinel)
        for sentinel in self.sentinels:
            wait_until(sentinel.is_serving, "a sentinel")
        wait_until(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels), "sentinels that know all")

    def __exit__(self, *_: object) -> None:
        for sentinel in self.sentinels:
            sentinel.end()
        super().__exit__()

    def _knows_all(self, sentinel: TcpServer) -> bool:
        with redis.Redis(host=HOST, port=sentinel.port, socket_timeout=5) as client:
            state = client.sentinel_master(MASTER)
        return (state["num-other-sentinels"], state["num-slaves"]) == (2, self._replicas)


class ClusterGroup(Group):
    """Masters with an equal share of the slots, and a replica each where wanted."""

    def __init__(
        self,
        version: str = "valkey_9_1",
        *,
        role: Role = "state",
        masters: int = 3,
        has_replicas: bool = True,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(version)
        self._role: Role = role
        self._masters = masters
        self._has_replicas = has_replicas
        self._options = options

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the cache service for the state."""
        return {
            "state_mode": "cluster",
            "state_url": "",
            "state_nodes": [server.address for server in self.servers[:2]],
        }

    @property
    def masters(self) -> list[TcpServer]:
        """Who takes writes now."""
        return [server for server in self.servers if server.is_serving() and _is_master(server)]

    def start(self) -> None:
        """Start all, and wait until they agree about the slots."""
        options = [
            *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
            *("--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--cluster-require-full-coverage", "no"),
            *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
            *self._options,
        ]
        count = self._masters * (2 if self._has_replicas else 1)
        for _ in range(count):
            port = free_port()
            self.add(self._role, *options, "--cluster-port", str(port))
        for server in self.servers:
            wait_until(server.is_serving, "a node")
        first, *others = self.servers
        for number, server in enumerate(self.servers):
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in others:
            first.ask("CLUSTER", "MEET", HOST, server.port, self._bus_port(server))
        edges = [16_384 * number // self._masters for number in range(self._masters + 1)]
        for number in range(self._masters):
            self.servers[number].ask("CLUSTER", "ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
        wait_until(lambda: all(_cluster_knows(server, count) for server in self.servers), "nodes that know all")
        if self._has_replicas:
            for number in range(self._masters):
                replica, master_id = self.servers[self._masters + number], node_id(self.servers[number])
                # One that is still shaking hands counts as known, under a name that it won't keep.
                wait_until(
                    lambda replica=replica, name=master_id: name in str(replica.ask("CLUSTER", "NODES")),  # type: ignore[misc]
                    "a replica that knows its master by name",
                )
                replica.ask("CLUSTER", "REPLICATE", master_id)
            for master in self.servers[: self._masters]:
                wait_until(lambda server=master: _is_online(server, 0), "a replica in step")  # type: ignore[misc]
        wait_until(lambda: all(_is_covered(server, count) for server in self.servers), "a cluster that is whole")

    def owner(self, key: str) -> TcpServer:
        """Who has a key."""
        return self.owners([key])[0]

    def owners(self, keys: Iterable[str]) -> list[TcpServer]:
        """Who has each key."""
        ports: dict[int, int] = {}
        for first, last, master, *_ in self.masters[0].ask("CLUSTER", "SLOTS"):
            ports |= dict.fromkeys(range(first, last + 1), int(master[1]))
        servers = {server.port: server for server in self.servers}
        return [servers[ports[key_slot(key.encode())]] for key in keys]

    def move(self, key: str, target: TcpServer, pause_s: float) -> None:
        """Move the slot of a key to another master, as a resharding does; `pause_s` after the first of its keys."""
        slot, source = key_slot(key.encode()), self.owner(key)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(target))
        count = 1
        while names := source.ask("CLUSTER", "GETKEYSINSLOT", slot, count):
            source.ask("MIGRATE", HOST, target.port, "", 0, 5_000, "KEYS", *names)
            if count == 1:
                time.sleep(pause_s)
            count = 200
        for server in (target, source, *(other for other in self.masters if other not in {target, source})):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", node_id(target))

    def _bus_port(self, server: TcpServer) -> int:
        config = server.ask("CONFIG", "GET", "cluster-port")
        return int(config[b"cluster-port"])


def node_id(server: TcpServer) -> str:
    """The name of a node in its cluster."""
    name: bytes = server.ask("CLUSTER", "MYID")
    return name.decode()


def _is_master(server: TcpServer) -> bool:
    return server.info("replication").get("role") == "master"


def _is_online(master: TcpServer, number: int) -> bool:
    replica = master.info("replication").get(f"slave{number}", {})
    return bool(replica) and replica.get("state") == "online"


def _cluster_info(server: TcpServer) -> dict[str, str]:
    info = server.ask("CLUSTER", "INFO")
    if isinstance(info, dict):
        return {str(key): str(value) for key, value in info.items()}
    return dict(line.split(":", 1) for line in info.decode().split())


def _cluster_knows(server: TcpServer, count: int) -> bool:
    return _cluster_info(server)["cluster_known_nodes"] == str(count)


def _is_covered(server: TcpServer, count: int) -> bool:
    info = _cluster_info(server)
    return (info["cluster_state"], info["cluster_slots_ok"], info["cluster_known_nodes"]) == ("ok", "16384", str(count))
