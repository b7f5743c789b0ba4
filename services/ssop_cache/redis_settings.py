"""Settings of the two roles of Redis: where each is, how it is deployed, and what opens it."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ssop_cache.deployment import Access, Mode, Tls
from ssop_chassis.settings import Settings, SettingsError

Role = Literal["cache", "state"]


class RedisSettings(Settings):
    """Where state and cache are. URLs are those of redis-py: `redis://`, `rediss://` or `unix://`."""

    state_mode: Mode = Field("standalone", description="How the state is deployed: standalone, sentinel or cluster.")
    state_url: str = Field(
        "", description="Redis for quotas, leases and logs: noeviction, AOF with appendfsync always. For standalone."
    )
    state_nodes: list[str] = Field(
        default_factory=list, description="host:port of its sentinels, or of some nodes of its cluster."
    )
    state_master: str = Field("", description="The name that the sentinels know the state's master by.")
    state_username: str = Field("", description="User of the ACL; empty: the default user.")
    state_password_file: Path | None = Field(None, description="Its password, on the first line of a file.")
    cache_mode: Mode = Field("standalone", description="How the cache is deployed: standalone, sentinel or cluster.")
    cache_url: str = Field(
        "", description="Redis for stored answers: an allkeys policy, no persistence. Another instance. For standalone."
    )
    cache_nodes: list[str] = Field(
        default_factory=list, description="host:port of its sentinels, or of some nodes of its cluster."
    )
    cache_master: str = Field("", description="The name that the sentinels know the cache's master by.")
    cache_username: str = Field("", description="User of the ACL; empty: the default user.")
    cache_password_file: Path | None = Field(None, description="Its password, on the first line of a file.")
    sentinel_username: str = Field("", description="User of the sentinels' ACL; empty: the default user.")
    sentinel_password_file: Path | None = Field(None, description="The sentinels' password, on a file's first line.")
    redis_tls: bool = Field(
        False, description="TLS to sentinels, cluster nodes and masters. Standalone: say `rediss://` in the URL."
    )
    redis_ca_file: Path | None = Field(None, description="Who signs the servers' certificates; none: the system's.")
    redis_certificate_file: Path | None = Field(None, description="The mesh's own certificate, for servers that ask.")
    redis_key_file: Path | None = Field(None, description="Its key.")

    @model_validator(mode="after")
    def _roles_are_named_and_apart(self) -> Self:
        for role in ("state", "cache"):
            _check_place(self, role)
        if self.state_mode == self.cache_mode == "standalone" and self.state_url == self.cache_url:
            raise ValueError("state_url and cache_url are the same: one instance can't both evict and keep")
        is_shared = bool(set(self.state_nodes) & set(self.cache_nodes))
        if self.state_mode == self.cache_mode == "cluster" and is_shared:
            raise ValueError("state_nodes and cache_nodes are one cluster: its nodes can't both evict and keep")
        is_one_master = self.state_master == self.cache_master
        if self.state_mode == self.cache_mode == "sentinel" and is_shared and is_one_master:
            raise ValueError("state_master and cache_master are the same: one master can't both evict and keep")
        if (self.redis_certificate_file is None) != (self.redis_key_file is None):
            raise ValueError("redis_certificate_file and redis_key_file go together")
        return self

    def access(self, role: Role) -> Access:
        """How to reach a role. Raises SettingsError where a password's file can't be used."""
        is_state = role == "state"
        return Access(
            mode=self.state_mode if is_state else self.cache_mode,
            url=self.state_url if is_state else self.cache_url,
            nodes=tuple(split_address(node) for node in (self.state_nodes if is_state else self.cache_nodes)),
            master=self.state_master if is_state else self.cache_master,
            username=self.state_username if is_state else self.cache_username,
            password=_read_password(self.state_password_file if is_state else self.cache_password_file),
            sentinel_username=self.sentinel_username,
            sentinel_password=_read_password(self.sentinel_password_file),
            tls=Tls(self.redis_tls, self.redis_ca_file, self.redis_certificate_file, self.redis_key_file),
        )


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ValueError."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"'{address}' is not host:port")
    return host, int(port)


def _check_place(settings: RedisSettings, role: str) -> None:
    """Raise ValueError unless what the role's mode needs is there, and nothing that another mode would need."""
    mode, url = getattr(settings, f"{role}_mode"), getattr(settings, f"{role}_url")
    nodes, master = getattr(settings, f"{role}_nodes"), getattr(settings, f"{role}_master")
    for node in nodes:
        split_address(node)
    if mode == "standalone":
        if not url:
            raise ValueError(f"{role}_url is missing")
        if nodes or master:
            raise ValueError(f"{role}_nodes and {role}_master are for other modes than standalone")
        return
    if url or not nodes:
        raise ValueError(f"{role}_mode {mode} takes {role}_nodes, and no {role}_url")
    if bool(master) != (mode == "sentinel"):
        raise ValueError(f"{role}_master is for the mode sentinel, and needed there")


def _read_password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the password file '{path}' can't be read: {type(error).__name__}") from error
    if not lines or not lines[0]:
        raise SettingsError(f"the password file '{path}' has no password on its first line")
    return lines[0]
