"""Settings of the opinion application, section `opinion`."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ssop_chassis.settings import Settings

Role = Literal["doors", "worker"]
Overflow = Literal["shed", "oldest", "sample"]
SinkKind = Literal["sqlite", "elasticsearch", "opensearch"]


class XStreamSettings(Settings):
    """A filtered stream of the X API, version 2."""

    tenant: str = Field(min_length=1, description="Tenant whose posts these are.")
    token_file: Path = Field(description="The bearer token of the app; mode 0600.")
    source: str = Field("x", pattern="^[A-Za-z0-9._-]{1,64}$", description="Name of the source in records.")
    url: str = Field("https://api.x.com/2/tweets/search/stream", min_length=1, description="Address of the stream.")
    backfill_minutes: int = Field(
        0, ge=0, le=5, description="Minutes that are asked for again after a break; 0 where the plan has no recovery."
    )
    stall_timeout_ms: int = Field(30_000, gt=0, description="Silence after which the stream is dead; it beats at 20 s.")


class RedisSourceSettings(Settings):
    """A Redis stream of somebody else, read through a consumer group."""

    tenant: str = Field(min_length=1, description="Tenant whose posts these are.")
    url: str = Field(min_length=1, description="Redis, as `redis://`, `rediss://` or `unix://`.")
    stream: str = Field(min_length=1, description="Key of the stream. Entries have a field `post` with JSON.")
    group: str = Field("ssop-opinion", min_length=1, description="Consumer group; it is made from the stream's begin.")
    source: str = Field("redis", pattern="^[A-Za-z0-9._-]{1,64}$", description="Name of the source in records.")


class KafkaSourceSettings(Settings):
    """A Kafka topic, read through a consumer group. Needs the extra `kafka`."""

    tenant: str = Field(min_length=1, description="Tenant whose posts these are.")
    servers: list[str] = Field(min_length=1, description="Brokers, as `host:port`.")
    topic: str = Field(min_length=1, description="The topic. Values are JSON posts.")
    group: str = Field("ssop-opinion", min_length=1, description="Consumer group.")
    source: str = Field("kafka", pattern="^[A-Za-z0-9._-]{1,64}$", description="Name of the source in records.")
    has_tls: bool = Field(False, description="Speak TLS to the brokers.")
    ca_file: Path | None = Field(None, description="Who signs the brokers' certificates; none: the system's.")
    certificate_file: Path | None = Field(None, description="A certificate for brokers that ask for one, PEM.")
    key_file: Path | None = Field(None, description="Its private key, PEM; mode 0600.")
    username: str = Field("", description="User of SASL; empty: none.")
    password_file: Path | None = Field(None, description="Its password, on the first line of a file; mode 0600.")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="How the password is shown; PLAIN wants TLS."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.username) != (self.password_file is not None):
            raise ValueError("username and password_file go together")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        if not self.has_tls and (self.ca_file or self.certificate_file):
            raise ValueError("ca_file and certificate_file need has_tls")
        if self.username and self.sasl_mechanism == "PLAIN" and not self.has_tls:
            raise ValueError("sasl_mechanism PLAIN sends the password as it is: set has_tls, or take SCRAM-SHA-512")
        return self


class SearchSettings(Settings):
    """Elasticsearch or OpenSearch."""

    urls: list[str] = Field(default=[], description="Nodes, as `https://host:9200`.")
    username: str = Field("", description="User; empty: none, or the key of `api_key_file`.")
    password_file: Path | None = Field(None, description="Its password, on the first line of a file.")
    api_key_file: Path | None = Field(None, description="An API key of Elasticsearch instead, on a file's first line.")
    ca_file: Path | None = Field(None, description="Who signs the nodes' certificates; none: the system's.")
    index: str = Field(
        "ssop-opinion", pattern="^[a-z0-9][a-z0-9._-]{0,63}$", description="Beginning of indices' names."
    )
    shards: int = Field(1, ge=1, le=64, description="Primary shards of an index, which holds a month.")
    replicas: int = Field(1, ge=0, le=8, description="Replicas of each.")
    retention_days: int = Field(400, ge=1, description="Age at which the cluster deletes an index (ILM or ISM).")
    has_lifecycle: bool = Field(True, description="Install the policy; false where the cluster has no ILM or ISM.")
    timeout_ms: int = Field(10_000, gt=0, description="Time for one request.")


class ChannelSettings(Settings):
    """Where alerts are told. Tenants name channels; addresses and secrets are the operator's alone."""

    kind: Literal["wecom", "feishu", "webhook"] = Field(description="A robot of WeCom or Feishu, or a signed webhook.")
    url_file: Path = Field(description="The address, on the first line of a file; a robot's holds its key. Mode 0600.")
    secret_file: Path | None = Field(
        None, description="The secret of signatures: needed by `webhook`; by `feishu` where its robot asks for it."
    )
    tenants: list[str] = Field(default=[], description="Tenants that may use it; none named: all.")
    language: Literal["en", "zh"] = Field("en", description="Of messages.")
    per_minute: int = Field(0, ge=0, description="Most messages a minute; 0: 20 for WeCom, 100 Feishu, 600 webhooks.")
    timeout_ms: int = Field(5_000, gt=0, description="Time for one message.")
    give_up_after_s: int = Field(86_400, gt=0, description="A message that can't be sent for so long has failed.")
    is_plain_allowed: bool = Field(False, description="Allow `http://` to other hosts than this one.")

    @model_validator(mode="after")
    def _has_a_secret(self) -> Self:
        if self.kind == "webhook" and self.secret_file is None:
            raise ValueError("a webhook needs secret_file, which signs its messages")
        return self


class OpinionSettings(Settings):
    """What the opinion application is told."""

    roles: list[Role] = Field(
        default=["doors", "worker"], min_length=1, description="What this process does: take posts in, analyse them."
    )
    listen: list[str] = Field(
        default=["127.0.0.1:7390"], min_length=1, description="Addresses to listen on: `host:port`, `unix:/path`."
    )
    router_address: str = Field("127.0.0.1:7300", min_length=1, description="Address of the mesh's router.")
    state_directory: Path = Field(description="Folder of what the application keeps: records, alerts.")
    tenants_directory: Path = Field(description="Folder with a file `NAME.toml` or `NAME.json` for each tenant.")
    stream_url: str = Field(
        min_length=1, description="Redis for posts that wait, in the role `state`: noeviction, AOF, appendfsync always."
    )
    redis_timeout_ms: int = Field(2_000, gt=0, description="Time for one call of that Redis.")
    is_role_checked: bool = Field(
        True, description="Refuse a Redis that may forget; false where CONFIG is not allowed, as with a vendor's."
    )
    # --- in
    max_body_bytes: int = Field(4_194_304, gt=0, description="Largest body of a webhook; more is 413.")
    max_batch_posts: int = Field(1_000, ge=1, le=10_000, description="Most posts of a webhook's body; more is 413.")
    max_in_flight: int = Field(256, gt=0, description="Webhooks at the same time; more are 429.")
    max_connections: int = Field(1_024, gt=0, description="Connections at the same time; more are 503.")
    max_header_bytes: int = Field(16_384, ge=1_024, description="Largest head of a request; more is 431.")
    body_timeout_ms: int = Field(10_000, gt=0, description="Time for a body to arrive; more is 408.")
    idle_timeout_ms: int = Field(
        30_000, ge=1_000, description="Time that a connection may be open without a whole request's head."
    )
    signature_window_ms: int = Field(
        300_000, gt=0, description="Age at which a webhook's signature is too old; nonces are kept for twice as long."
    )
    duplicate_window_ms: int = Field(
        600_000, gt=0, description="How long a post's id is remembered: a second delivery is taken, and not queued."
    )
    max_queued: int = Field(50_000, gt=0, description="Posts that wait or are worked on.")
    max_queued_bytes: int = Field(
        67_108_864,
        gt=0,
        description="Their bytes; the Redis that holds them needs about twice that beside its other data.",
    )
    overflow: Overflow = Field(
        "shed",
        description="Above that: `shed` refuses (429), `oldest` drops the oldest into the dead letters, `sample` takes"
        " one of `sample_one_in` and refuses only above twice the bound.",
    )
    sample_one_in: int = Field(10, ge=2, description="Share that `sample` takes.")
    max_dead_letters: int = Field(10_000, gt=0, description="Dead letters that are kept; the oldest go, counted.")
    x_streams: tuple[XStreamSettings, ...] = Field((), description="Filtered streams of X.")
    redis_sources: tuple[RedisSourceSettings, ...] = Field((), description="Redis streams to read.")
    kafka_sources: tuple[KafkaSourceSettings, ...] = Field((), description="Kafka topics to read.")
    # --- through
    batch: int = Field(256, ge=1, le=1_000, description="Posts that are read from the queue at once.")
    max_analyses: int = Field(192, gt=0, description="Posts that are analysed at the same time.")
    analysis_timeout_ms: int = Field(60_000, gt=0, description="Time for the analysis of one post.")
    claim_ms: int = Field(
        30_000, ge=100, description="Silence after which a worker is dead and others take its posts over."
    )
    max_tries: int = Field(8, ge=1, description="Times that a post is begun; then it is a dead letter, and `failed`.")
    max_wait_ms: int = Field(10_000, gt=0, description="Longest pause between tries while mesh or sink is away.")
    repost_window_ms: int = Field(
        60_000,
        ge=0,
        description="How long the analysis of a post serves for near-identical ones; 0: only while it runs.",
    )
    has_hint: bool = Field(True, description="Say in the prompt how the post sounds, by the sentiment model.")
    hint_file: Path | None = Field(None, description="Its artefact; none: the one that ships.")
    has_probabilities: bool = Field(
        False,
        description="Ask for the probabilities of records' values; such answers are never taken from the cache.",
    )
    max_output_tokens: int = Field(320, ge=64, le=4_096, description="Longest answer; beyond it a record is cut.")
    max_degraded_level: int = Field(
        2, ge=0, le=3, description="Deepest degradation that makes a record, which says so; others wait for the mesh."
    )
    # --- out
    sink: SinkKind = Field("sqlite", description="Where records are kept.")
    sqlite_file: Path | None = Field(None, description="File of the sink `sqlite`; none: records.db in the state.")
    search: SearchSettings = Field(
        default_factory=SearchSettings, description="The sinks `elasticsearch` and `opensearch`."
    )
    bulk: int = Field(500, ge=1, le=10_000, description="Most records of one write.")
    linger_ms: int = Field(50, ge=0, description="How long a write waits for more records.")
    channels: dict[str, ChannelSettings] = Field(default={}, description="Where alerts are told, by name.")
    page_url: str = Field("", description="Address of the page /opinion as people reach it, for links in messages.")
    has_page: bool = Field(True, description="Serve the page /opinion.")
    page_key_cache_ms: int = Field(30_000, ge=0, description="How long the mesh's word on a key of the page is kept.")
    has_metrics: bool = Field(True, description="Serve /metrics, without a key.")

    @model_validator(mode="after")
    def _sink_is_named(self) -> Self:
        if self.sink != "sqlite" and not self.search.urls:
            raise ValueError(f"the sink {self.sink} needs search.urls")
        return self

    @property
    def records_file(self) -> Path:
        """File of the sink `sqlite`."""
        return self.sqlite_file or self.state_directory / "records.db"
