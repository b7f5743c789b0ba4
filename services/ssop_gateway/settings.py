"""Section `gateway` of `ssop.toml`."""

from pydantic import Field

from ssop_chassis.settings import Settings


class GatewaySettings(Settings):
    """What the HTTP edge is told."""

    listen: list[str] = Field(
        default=["127.0.0.1:7380"], min_length=1, description="Addresses to listen on: `host:port`, `unix:/path`."
    )
    router_address: str = Field("127.0.0.1:7300", min_length=1, description="Address of the router.")
    default_timeout_ms: int = Field(60_000, gt=0, description="Time for a request that names none.")
    max_timeout_ms: int = Field(300_000, gt=0, description="Longest time for a request.")
    max_body_bytes: int = Field(4_194_304, gt=0, description="Largest body of a request; more is 413.")
    max_header_bytes: int = Field(16_384, ge=1_024, description="Largest head of a request; more is 431.")
    max_held_bytes: int = Field(
        67_108_864, gt=0, description="Bodies of all requests that run, together; more are 429."
    )
    body_timeout_ms: int = Field(10_000, gt=0, description="Time for a request's body to arrive; more is 408.")
    write_timeout_ms: int = Field(
        20_000, gt=0, description="Time that a client may leave what was sent unread; then its request is cancelled."
    )
    keepalive_ms: int = Field(15_000, gt=0, description="Silence after which a comment is sent on an SSE stream.")
    idle_timeout_ms: int = Field(
        30_000, ge=1_000, description="Time that a connection may be open without a whole request's head."
    )
    max_in_flight: int = Field(256, gt=0, description="Requests at the same time; more are 429.")
    max_connections: int = Field(1_024, gt=0, description="Connections at the same time; more are 503.")
    ready_timeout_ms: int = Field(1_000, gt=0, description="Time for the router to say whether it serves.")
    ready_cache_ms: int = Field(500, ge=0, description="How long that answer is trusted.")
    cors_origins: list[str] = Field(
        default=[], description="Origins whose pages may call, such as `https://app.example`. None: no CORS."
    )
    has_console: bool = Field(True, description="Serve the page /console.")
    has_metrics: bool = Field(True, description="Serve /metrics, without a key.")
