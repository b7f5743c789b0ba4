"""Where the instances of a role are, in each of the three ways to deploy Redis: one, behind sentinels, or a cluster.

redis-py's own clients know who is who: its Sentinel asks for the master, its RedisCluster keeps the table of slots.
None of them repeats anything: a script whose reply did not come may have run. Redirections are followed by the store.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, RedisClusterException
from redis.exceptions import ConnectionError as RedisConnectionError

from ssop_cache.lines import Lines

Mode = Literal["standalone", "sentinel", "cluster"]
Word = str | bytes | int
LEARN_S: Final = 2.0
"""Most that finding out who serves may take. No request waits for it."""
_PRIMARY: Final = "primary"
_REST_S: Final = 0.05
_MOST_REST_S: Final = 0.4
_LONG_REST_S: Final = 2.0
_PATIENCE: Final = 20
"""Readings without a change after which a master that is gone is not expected back soon."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to the servers; `ca_file` None is the system's."""

    is_on: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    def options(self) -> dict[str, Any]:
        """Arguments of redis-py."""
        files = {
            "ssl_ca_certs": self.ca_file,
            "ssl_certfile": self.certificate_file,
            "ssl_keyfile": self.key_file,
        }
        return {name: str(path) for name, path in files.items() if path is not None}


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a role. `url` is for standalone, `nodes` are sentinels or nodes of a cluster, as host and port."""

    mode: Mode = "standalone"
    url: str = ""
    nodes: tuple[tuple[str, int], ...] = ()
    master: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: Tls = Tls()


class Instance(Protocol):
    """A server that takes writes; `name` is unique in its deployment, and no secret."""

    @property
    def name(self) -> str: ...

    def post(self, words: tuple[Word, ...]) -> "asyncio.Future[Any] | None":
        """The reply to a script, sent once, with what else is sent in this turn; None where only `send` can."""

    async def send(self, *words: Word, is_asking: bool = False) -> Any:
        """One command, once; after an ASK it is announced on the same connection."""

    def drop_silent(self) -> None:
        """Give up connections whose next reply nobody waits for any more: it may never come."""

    async def warm_up(self, commands: Sequence[tuple[Word, ...]]) -> None:
        """Run the commands, and make the connections that a crowd needs. Raises RedisError and OSError."""


class Deployment(Protocol):
    """The instances of a role. Calls that take no time-out are bounded by their caller.

    `calls_per_connection`: how many calls at the same time a connection is good for.
    """

    calls_per_connection: int
    is_cluster: bool

    def owner(self, key: str | None) -> Instance | None:
        """Who has a key; None: nobody that is known."""

    def instances(self) -> Sequence[Instance]:
        """All that take writes, as far as is known."""

    async def learn(self) -> None:
        """Find out who serves. Raises RedisError, OSError or TimeoutError."""

    async def redirect(self, error: AskError) -> Instance:
        """Who has the key instead, by a server's word. Raises RedisConnectionError for one that is not known."""

    async def drop(self, instance: Instance) -> None:
        """Give up the connections to an instance that nobody uses now."""

    def subscriber(self) -> PubSub:
        """A subscription on a connection of its own, at an instance that hears all that is published."""

    async def close(self) -> None:
        """Drop the connections."""


def open_deployment(access: Access, *, timeout_s: float, connections: int) -> Deployment:
    """The deployment, not yet connected to."""
    if access.mode == "cluster":
        return ShardedDeployment(access, timeout_s=timeout_s, connections=connections)
    return SingleDeployment(access, timeout_s=timeout_s, connections=connections)


class SingleInstance:
    """The one that takes writes, whoever that is. Scripts that wait together travel together."""

    def __init__(self, redis: "Redis", connections: int) -> None:
        self.name = "master"
        self.redis = redis
        self.lines = Lines(redis.connection_pool, connections)
        # Without a layer in between: every exchange goes through it.
        self.post = self.lines.send

    async def send(self, *words: Word, is_asking: bool = False) -> Any:  # noqa: ARG002 - nobody redirects here
        """One command, once."""
        if words[0] in {"EVALSHA", "EVAL"}:
            return await self.lines.send(words)
        return await cast("Awaitable[Any]", self.redis.execute_command(*words))  # type: ignore[no-untyped-call]

    def drop_silent(self) -> None:
        """See Instance."""
        self.lines.drop_silent()

    async def warm_up(self, commands: Sequence[tuple[Word, ...]]) -> None:
        """See Instance."""
        await self.lines.warm_up(commands)


class SingleDeployment:
    """One instance, or the master that sentinels name: asked anew for each connection."""

    calls_per_connection = 4
    is_cluster = False

    def __init__(self, access: Access, *, timeout_s: float, connections: int) -> None:
        self._master = access.master
        self._sentinel: Sentinel | None = None
        # The one bound on a call is the caller's, around connecting, sending and reading; redis-py's own would add a
        # task to every send. Subscriptions wait without end, so they have connections of their own.
        options: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None, "retry_on_error": []}
        options |= {"health_check_interval": 0, "decode_responses": False} | _credentials(access)
        if access.mode == "sentinel":
            self._sentinel = Sentinel(  # type: ignore[no-untyped-call]
                access.nodes,
                sentinel_kwargs={
                    # A frozen sentinel leaves time to ask the next.
                    "socket_timeout": timeout_s / 2,
                    "socket_connect_timeout": timeout_s / 2,
                    "retry": Retry(NoBackoff(), 0),
                    "username": access.sentinel_username or None,
                    "password": access.sentinel_password or None,
                    "ssl": access.tls.is_on,
                    **(access.tls.options() if access.tls.is_on else {}),
                },
            )
            if access.tls.is_on:
                options |= {"ssl": True, **access.tls.options()}
        elif access.url.startswith("rediss://"):
            options |= access.tls.options()
        # Those of scripts, one for each plain command that may run, the probe's, and one to ask how full it is.
        most = connections * (1 + self.calls_per_connection) + 2
        self._instance = SingleInstance(self._connect(access, options | {"max_connections": most}), connections)
        self._listener = self._connect(
            access, options | {"max_connections": 1, "socket_connect_timeout": max(timeout_s, 0.05)}
        )

    def owner(self, key: str | None) -> SingleInstance:  # noqa: ARG002 - there is one
        """The one."""
        return self._instance

    def instances(self) -> Sequence[Instance]:
        """The one."""
        return (self._instance,)

    async def learn(self) -> None:
        """Ask the sentinels, where there are some; the first that knows is asked first from then on."""
        if self._sentinel is not None:
            async with asyncio.timeout(LEARN_S):
                await self._sentinel.discover_master(self._master)

    async def redirect(self, error: AskError) -> Instance:
        """A server that redirects is one of a cluster, and this is none."""
        raise RedisConnectionError("the server belongs to a cluster: its mode is not standalone") from error

    async def drop(self, instance: Instance) -> None:  # noqa: ARG002 - there is one
        """Connections may lead to one that is no master any more."""
        self._instance.lines.drop_idle()
        await self._instance.redis.connection_pool.disconnect(inuse_connections=False)

    def subscriber(self) -> PubSub:
        """On a connection of its own."""
        return self._listener.pubsub(ignore_subscribe_messages=True)

    async def close(self) -> None:
        """Drop the connections."""
        await self._instance.lines.close()
        await self._instance.redis.aclose()
        await self._listener.aclose()
        if self._sentinel is not None:
            await self._sentinel.aclose()

    def _connect(self, access: Access, options: dict[str, Any]) -> "Redis":
        retry = Retry(NoBackoff(), 0)
        if self._sentinel is not None:
            return cast("Redis", self._sentinel.master_for(self._master, retry=retry, **options))
        return Redis.from_url(access.url, retry=retry, **options)


class ShardInstance:
    """A node of a cluster."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.name = node.name

    def post(self, words: tuple[Word, ...]) -> "asyncio.Future[Any] | None":
        """A node may send elsewhere, which `send` alone hears."""

    async def send(self, *words: Word, is_asking: bool = False) -> Any:
        """One command, once. ASKING counts for the next command of its connection, so both go out together."""
        if not is_asking:
            return await self.node.execute_command(*words)
        connection = self.node.acquire_connection()
        try:
            await self.node.disconnect_if_needed(connection)
            await connection.send_packed_command(connection.pack_commands([("ASKING",), words]))
            try:
                await connection.read_response()
            except BaseException:
                # The command's own reply would be read as that of the next.
                await connection.disconnect(nowait=True)
                raise
            return await connection.read_response()
        finally:
            self.node.release(connection)

    def drop_silent(self) -> None:
        """A call that is given up takes its connection with it."""

    async def warm_up(self, commands: Sequence[tuple[Word, ...]]) -> None:
        """Run the commands."""
        for words in commands:
            await self.node.execute_command(*words)


class ShardedDeployment:
    """A cluster: the table of slots is redis-py's, learnt anew after failures and patched by MOVED."""

    calls_per_connection = 1
    is_cluster = True

    def __init__(self, access: Access, *, timeout_s: float, connections: int) -> None:
        self._timeout_s = timeout_s
        self._learn_s = min(LEARN_S, max(2 * timeout_s, 0.25))
        self._options = _credentials(access)
        if access.tls.is_on:
            self._options |= {"ssl": True, **access.tls.options()}
        host, port = access.nodes[0]
        self._cluster = RedisCluster(
            host,
            port,
            # A part of the slots that nobody has must not stop the others.
            require_full_coverage=False,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            # Those that are to be renewed are free only once they are closed, and the probe needs some.
            max_connections=2 * connections + 4,
            # The bound is the caller's, as above; redis-py's own forgets cancels in Python 3.11 (`wait_for`).
            socket_timeout=None,
            socket_connect_timeout=None,
            **self._options,
        )
        self._table = self._cluster.nodes_manager
        options = self._table.connection_kwargs
        # Asked too when all that was learnt of is gone.
        self._seeds = [ClusterNode(host, port, **options) for host, port in access.nodes]
        self._listeners: dict[str, Redis] = {}
        self._learning: asyncio.Task[None] | None = None
        self._owners: tuple[str, ...] = ()
        self._unchanged = 0
        self._rests_until_s = 0.0

    def owner(self, key: str | None) -> ShardInstance | None:
        """The master of a key's slot; of any slot for a command without a key."""
        if key is None:
            node = self._table.default_node
            return ShardInstance(node) if node is not None else None
        nodes = self._table.slots_cache.get(self._cluster.keyslot(key))
        return ShardInstance(nodes[0]) if nodes else None

    def instances(self) -> Sequence[Instance]:
        """The masters."""
        return [ShardInstance(node) for node in self._table.nodes_cache.values() if node.server_type == _PRIMARY]

    async def learn(self) -> None:
        """Read the table of slots from whoever answers. Many that ask at once wait for one answer.

        A table that stays as it is is read less and less often: redis-py renews all connections each time.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._rests_until_s:
            return
        if self._learning is None or self._learning.done():
            self._learning = asyncio.ensure_future(self._read_table())
        await asyncio.shield(self._learning)

    async def _read_table(self) -> None:
        for seed in self._seeds:
            self._table.startup_nodes.setdefault(seed.name, seed)
        try:
            # Whom redis-py asks first is chance, so a frozen node costs some of the tries.
            async with asyncio.timeout(self._learn_s):
                await self._table.initialize()
        except RedisClusterException as error:
            raise RedisConnectionError("no node of the cluster tells its slots") from error
        except IndexError as error:
            raise RedisConnectionError("the cluster has no master with slots") from error
        owners = tuple(nodes[0].name for _, nodes in sorted(self._table.slots_cache.items()))
        self._unchanged = self._unchanged + 1 if owners == self._owners else 0
        self._owners = owners
        rest_s = min(_REST_S * 2**self._unchanged, _MOST_REST_S if self._unchanged < _PATIENCE else _LONG_REST_S)
        self._rests_until_s = asyncio.get_running_loop().time() + rest_s
        gone = set(self._listeners) - {instance.name for instance in self.instances()}
        for name in gone:
            await self._listeners.pop(name).aclose()

    async def redirect(self, error: AskError) -> Instance:
        """MOVED changes the table, ASK is for once."""
        is_known = error.slot_id in self._table.slots_cache
        if isinstance(error, MovedError) and is_known:
            await self._table.move_slot(error)
        node = self._table.get_node(host=error.host, port=error.port)
        if node is None:
            raise RedisConnectionError("a server named a node that is not known")
        return ShardInstance(node)

    async def drop(self, instance: Instance) -> None:
        """Idle connections to a node that failed."""
        node = self._table.get_node(node_name=instance.name)
        if node is not None:
            await node.disconnect_free_connections()

    def subscriber(self) -> PubSub:
        """At any master: what one publishes, all hear. The one that served it last goes to the end."""
        instances = [cast("ShardInstance", instance) for instance in self.instances()]
        if not instances:
            raise RedisConnectionError("no node of the cluster is known")
        order = list(self._listeners)
        instances.sort(key=lambda instance: order.index(instance.name) if instance.name in order else -1)
        node = instances[0].node
        listener = self._listeners.pop(node.name, None)
        if listener is None:
            listener = Redis(
                host=node.host,
                port=int(node.port),
                max_connections=1,
                socket_timeout=None,
                socket_connect_timeout=max(self._timeout_s, 0.05),
                retry=Retry(NoBackoff(), 0),
                **self._options,
            )
        self._listeners[node.name] = listener
        return listener.pubsub(ignore_subscribe_messages=True)

    async def close(self) -> None:
        """Drop the connections."""
        if self._learning is not None:
            self._learning.cancel()
            with suppress(BaseException):
                await self._learning
        for listener in self._listeners.values():
            await listener.aclose()
        await self._table.aclose()
        await self._table.aclose("startup_nodes")
        for seed in self._seeds:
            await seed.disconnect()


def _credentials(access: Access) -> dict[str, Any]:
    named = {"username": access.username, "password": access.password}
    return {name: value for name, value in named.items() if value}
