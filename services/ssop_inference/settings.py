"""Section `inference` of ssop.toml."""

import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, field_serializer, model_validator

from ssop_chassis.announcement import read_address
from ssop_chassis.settings import Settings
from ssop_inference.core.dialect import ANTHROPIC_DIALECTS, DIALECTS
from ssop_inference.core.request import MAX_LINGER_MS

Tier = Literal["lite", "full"]
BackendKind = Literal["embedded", "openai", "anthropic", "replay"]
_DEFAULT_CONTEXT_TOKENS: Final = 2048
_MIN_CONTEXT_TOKENS: Final = 64
_OF_SERVERS: Final = frozenset({"openai", "anthropic"})


def _default_models_dir() -> Path:
    state = os.environ.get("SSOP_STATE_DIR")
    return Path(state) / "models" if state else Path.home() / ".local/share/ssop/models"


class LimitSettings(Settings):
    """What is added to a schema where it leaves a value without end."""

    max_string_chars: int = Field(512, gt=0, description="Characters of a string.")
    max_array_items: int = Field(64, gt=0, description="Items of an array.")
    max_object_keys: int = Field(64, gt=0, description="Keys of a map.")
    number_fraction_digits: int = Field(6, ge=0, le=12, description="Digits after the point of a number.")


class ModelSettings(Settings):
    """One model: run in this process (`embedded`), behind a model server, or played from a file (`replay`)."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$", description="Name that requests use.")]
    backend: BackendKind = Field(
        "embedded",
        description="`embedded`: llama.cpp in this process. `openai`: a server that speaks OpenAI's chat API"
        " (vLLM, SGLang, llama-server, vendors). `anthropic`: Anthropic's Messages API. `replay`: recorded streams,"
        " for tests and benchmarks.",
    )
    path: Path | None = Field(
        None, description="GGUF file, or the recording of `replay`. Absent: the model of that name in the store."
    )
    url: str = Field("", description="Of a model server: the base URL of its API, such as `http://127.0.0.1:8000/v1`.")
    upstream_model: str = Field("", description="The model's name on its server. Empty: the first one that it lists.")
    api_key_file: Path | None = Field(None, description="File with the key for the server, mode 0600.")
    dialect: str = Field(
        "auto",
        description=f"How a server is told a schema: {', '.join(sorted(DIALECTS))} of `openai`,"
        f" {', '.join(sorted(ANTHROPIC_DIALECTS))} of `anthropic`. `auto`: found out.",
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Fields that each request to the server carries besides."
    )
    has_tools: bool | None = Field(
        None,
        description="Whether a model server calls tools by its own API. Absent: vendors of whom it is documented do."
        " `true` is tried at the start, and announced only where the server really calls.",
    )
    has_images: bool = Field(False, description="Whether the model of a server takes images (png, jpeg, webp, gif).")
    ca_file: Path | None = Field(None, description="Certificates (PEM) that the server's own must come from.")
    proxy: str = Field("", description="URL of an HTTP proxy on the way to the server.")
    connect_timeout_ms: int = Field(2_000, gt=0, description="Longest time for a connection to the server.")
    first_token_timeout_ms: int = Field(
        30_000, gt=0, description="Longest time from a request to the server until its first token."
    )
    stall_timeout_ms: int = Field(10_000, gt=0, description="Longest time between two tokens of the server.")
    load_period_ms: int = Field(
        1_000,
        ge=100,
        description="How often the server is asked how busy it is; one that does not say: connected to, half as often.",
    )
    tiers: tuple[Tier, ...] = Field(("lite",), min_length=1, description="Tiers that it serves.")
    context_tokens: int = Field(
        0,
        ge=0,
        description="Context of one request, prompt and answer together. 0: 2048 where `embedded`, else what the server"
        " says, or 8192.",
    )
    slots: int = Field(4, gt=0, le=4096, description="Requests that generate at the same time.")
    has_schema_in_prompt: bool = Field(
        False,
        description="Show the model the schema even where a grammar holds it: better answers from models that can"
        " read one, more prompt tokens.",
    )

    @field_serializer("extra_body", when_used="json")
    def _hide_values(self, extra_body: dict[str, Any]) -> dict[str, str]:
        """What is logged of them: some servers take keys and names of users there."""
        return dict.fromkeys(extra_body, "***")

    @model_validator(mode="after")
    def _check_backend(self) -> Self:
        if self.backend in _OF_SERVERS and not self.url:
            raise ValueError(f"backend `{self.backend}` needs a `url`")
        if self.backend not in _OF_SERVERS and self.url:
            raise ValueError(f"backend `{self.backend}` takes no `url`")
        if self.backend not in _OF_SERVERS and (self.has_images or self.has_tools is not None):
            raise ValueError(f"`has_images` and `has_tools` are for model servers, not for backend `{self.backend}`")
        if self.backend == "replay" and self.path is None:
            raise ValueError("backend `replay` needs the `path` of a recording")
        known = ANTHROPIC_DIALECTS if self.backend == "anthropic" else DIALECTS
        if self.dialect != "auto" and self.dialect not in known:
            raise ValueError(f"there is no dialect `{self.dialect}`; there are: auto, {', '.join(sorted(known))}")
        if self.backend == "embedded" and 0 < self.context_tokens < _MIN_CONTEXT_TOKENS:
            raise ValueError(f"`context_tokens` must be 0 or at least {_MIN_CONTEXT_TOKENS}")
        return self

    @property
    def embedded_context_tokens(self) -> int:
        """Context of the embedded engine."""
        return self.context_tokens or _DEFAULT_CONTEXT_TOKENS


def _unique_names(models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
    names = [model.name for model in models]
    if len(set(names)) != len(names):
        raise ValueError("two models have the same name")
    return models


class InferenceSettings(Settings):
    """Section `inference`."""

    node: str = Field("node-1", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Name of this node.")
    listen: tuple[str, ...] = Field(
        ("127.0.0.1:7310",), min_length=1, description="Addresses, `host:port` or `unix:/path`."
    )
    announce: bool = Field(
        False, description="Announce this node to the routers, by way of the cache service (docs/nodes.md)."
    )
    announce_address: str = Field(
        "",
        description="Where routers reach it, `IP:port` or `unix:/path`. Empty: the first address that it listens on.",
    )
    announce_lease_ms: int = Field(
        5_000,
        ge=500,
        le=600_000,
        description="How long its lease holds without a renewal; there are three in it.",
    )
    cache_address: str = Field("", description="Address of the cache service, where leases are kept.")
    models_dir: Path = Field(default_factory=_default_models_dir, description="The model store.")
    models: Annotated[tuple[ModelSettings, ...], AfterValidator(_unique_names)] = Field(
        (ModelSettings(name="smollm2-135m-instruct", tiers=("lite", "full")),),
        min_length=1,
        description="Models that are served; the first one is the default.",
    )
    threads: int = Field(
        0, ge=0, description="CPU threads of an engine; 0 is one less than there are cores, at least 1."
    )
    max_waiting: int = Field(64, ge=0, description="Requests that may wait for a slot of a model.")
    max_output_tokens: int = Field(512, gt=0, description="Output tokens of requests that set no limit.")
    prefill_batch_tokens: int = Field(
        16,
        ge=8,
        le=2048,
        description="Prompt tokens between two looks at cancelled requests. 16 lets go within about 100 ms; 256 reads"
        " long prompts with a fifth less CPU, and lets go after a second or more.",
    )
    prompt_cache_mib: int = Field(128, ge=0, description="Memory for the prefixes of finished prompts, each model.")
    linger_ms: int = Field(
        0,
        ge=0,
        le=MAX_LINGER_MS,
        description="Least time between two messages of an answer whose request names none (`linger_ms`): what becomes"
        " ready within it waits and travels together. The first field and the end wait for nothing. It must be"
        " less than `stall_timeout_ms` of the routers.",
    )
    max_schemas: int = Field(256, gt=0, description="Compiled schemas that are kept.")
    limits: LimitSettings = Field(LimitSettings(), description="Engine limits.")
    warm_up_timeout_ms: int = Field(
        60_000, gt=0, description="Longest time for the one token that each model generates before the node serves."
    )

    @model_validator(mode="after")
    def _check_announcing(self) -> Self:
        if not self.announce:
            return self
        if not self.cache_address:
            raise ValueError("`announce` needs a cache_address: leases are kept there")
        address = self.announce_address or self.listen[0]
        # Of a listener port 0 is any free one, which is known once it listens.
        any_port = not self.announce_address and address.endswith(":0")
        read_address(f"{address[:-1]}1" if any_port else address)
        return self

    @property
    def engine_threads(self) -> int:
        """CPU threads of an engine."""
        return self.threads or max(1, (os.cpu_count() or 1) - 1)
