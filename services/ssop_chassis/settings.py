"""Settings: one file `ssop.toml` with a table per section, overridden by `SSOP_<SECTION>_<KEY>` in the environment.

Unknown tables, keys and variables stop the start with one message that lists all faults. Values of variables are
text; lists and tables are written as JSON. A path `credential:NAME` is that file of $CREDENTIALS_DIRECTORY, where the
service manager puts what only this service may read (`LoadCredential=` of systemd).
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

SECTIONS: Final = ("mesh", "router", "inference", "cache", "rag", "gateway", "opinion", "ebpf")
# Read by tools and tests, not by services.
_OTHER_VARIABLES: Final = frozenset(
    {
        "SSOP_CONFIG",
        "SSOP_STATE_DIR",
        "SSOP_API_KEY",
        "SSOP_TARGET",
        "SSOP_TLS_CA",
        "SSOP_TLS_CERTIFICATE",
        "SSOP_TLS_KEY",
        "SSOP_TLS_NAME",
        "SSOP_REQUIRE",
        "SSOP_SUITES",
    }
)
_PREFIX: Final = "SSOP_"
_TEST_PREFIX: Final = "SSOP_TEST_"
_CREDENTIAL: Final = re.compile(r"credential:([A-Za-z0-9][A-Za-z0-9._-]*)")
EXIT_SETTINGS: Final = 78
"""EX_CONFIG of sysexits.h: the settings can't be used, so a restart won't help."""
_USER_INFO: Final = re.compile(r"(?<=://)[^/?#\s]*@")
# Compiled modules keep numbers as C does, some of them a thousand times as large; beyond this a double skips some, too.
_LARGEST: Final = 2**53


class SettingsError(ValueError):
    """Settings that can't be used; the text lists every fault on a line of its own."""


class Settings(BaseModel):
    """Base of every section: immutable, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _check_size(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError(f"must be at most {_LARGEST}")
        return value


class TlsSettings(Settings):
    """Table `mesh.tls`: TLS between services. The files are read again when they change (docs/tls.md)."""

    certificate_file: Path | None = Field(
        None, description="Certificate of this host's services with its chain, PEM. None: listeners are in plain text."
    )
    key_file: Path | None = Field(None, description="Its private key, PEM; mode 0600.")
    ca_file: Path | None = Field(
        None, description="Authorities, PEM, that the certificates of other services must come from. None: gRPC's own."
    )
    mutual: list[Literal["router", "inference", "cache", "rag"]] = Field(
        default=["inference", "cache", "rag"],
        description="Services that take only callers that show a certificate of `ca_file`.",
    )
    server_name: str = Field(
        "", description="Name that the services' certificates carry, where it is not the host of their address."
    )
    plain: list[str] = Field(
        default=[], description="Addresses, listened on or called, that stay in plain text; unix sockets always do."
    )

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        if self.certificate_file is not None and self.mutual and self.ca_file is None:
            raise ValueError("`mutual` needs a ca_file that the callers' certificates come from")
        return self

    @property
    def is_on(self) -> bool:
        """Other services are called over TLS."""
        return self.certificate_file is not None or self.ca_file is not None


class MeshSettings(Settings):
    """Section `mesh`: what all services share."""

    secret_file: Path = Field(description="The mesh's secret in hex, at least 32 bytes; mode 0600.")
    old_secret_file: Path | None = Field(
        None, description="The secret before, while it is rotated: calls and API keys under it are still taken."
    )
    next_secret_file: Path | None = Field(
        None,
        description="The secret to come: calls under it are taken already, so that services may change one by one.",
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="TLS between services: a table. See docs/tls.md.")
    transport: Literal["auto", "grpc", "inner", "native"] = Field(
        "auto",
        description="What carries calls: gRPC's own library; the native transport between services and gRPC's towards "
        "clients (`inner`); or the native one everywhere. `auto`: `native` where it was built, `grpc` elsewhere. See "
        "docs/transport.md.",
    )
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="Least level that is logged.")
    default_deadline_ms: int = Field(30_000, gt=0, description="Deadline of calls that come without one.")
    max_session_ms: int = Field(86_400_000, gt=0, description="Life of a bidirectional stream without a deadline.")
    lame_duck_ms: int = Field(0, ge=0, description="How long a draining service still accepts, for balancers.")
    drain_ms: int = Field(10_000, ge=0, description="How long a draining service lets calls finish.")
    max_message_bytes: int = Field(4_194_304, gt=0, description="Largest message.")
    max_concurrent_calls: int = Field(1024, gt=0, description="Calls at the same time; more are OVERLOADED.")
    max_connection_age_ms: int = Field(
        3_600_000,
        ge=0,
        description="When a server asks a client to connect anew, give or take a tenth, so that it finds servers that "
        "came later. No call is lost. 0: never.",
    )
    max_connection_age_grace_ms: int = Field(
        0, ge=0, description="What calls get to end on a connection of that age, before they are cut. 0: all they need."
    )
    max_connection_idle_ms: int = Field(
        1_800_000, ge=0, description="When a connection without calls is ended, or after twice as long. 0: never."
    )
    compression: Literal["none", "gzip"] = Field(
        "none",
        description="Whether messages are sent compressed to peers that read it; it costs CPU for bytes. Compressed "
        "messages are always taken. See docs/transport.md.",
    )
    metrics_listen: dict[str, str] = Field(
        default_factory=dict,
        description="By service: `host:port` of its Prometheus metrics, port 0 for any free one.",
    )
    has_reflection: bool = Field(True, description="Serve gRPC reflection.")
    otlp_endpoint: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="An OpenTelemetry collector for traces, OTLP over gRPC, as `http://127.0.0.1:4317`. Empty: none.",
    )
    trace_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the traces begun here that is kept; a caller's `traceparent` decides its own.",
    )


S = TypeVar("S", bound=Settings)


def load_settings(kind: type[S], section: str, *, path: Path | None, environ: Mapping[str, str]) -> S:
    """Load one section from the file at `path` (None: no file) and the environment. Raises SettingsError."""
    faults: list[str] = []
    document: dict[str, Any] = {}
    if path is not None:
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise SettingsError(f"{path}: {error}") from error
    faults += [f"{path}: [{name}] is no section" for name in document if name not in SECTIONS]
    values: dict[str, Any] = dict(document.get(section, {}))
    for name, text in environ.items():
        if not name.startswith(_PREFIX) or name.startswith(_TEST_PREFIX) or name in _OTHER_VARIABLES:
            continue
        owner, _, key = name.removeprefix(_PREFIX).lower().partition("_")
        if owner not in SECTIONS or not key:
            faults.append(f"{name}: is no setting")
        elif owner == section:
            values[key] = _parse(kind, key, text)
    values = _find_credentials(values, environ.get("CREDENTIALS_DIRECTORY", ""), faults)
    try:
        settings = kind.model_validate(values)
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            where = ".".join(str(part) for part in fault["loc"])
            faults.append(f"[{section}] {where}: {fault['msg']}")
        raise SettingsError("\n".join(faults)) from error
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def _parse(kind: type[Settings], key: str, text: str) -> Any:
    """Text for scalars; JSON for lists and tables, told by the field's default form."""
    if key in kind.model_fields and text[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text


def _find_credentials(value: Any, folder: str, faults: list[str]) -> Any:
    """The value with a path for each `credential:NAME` in it; without a `folder` that is a fault."""
    if isinstance(value, dict):
        return {name: _find_credentials(held, folder, faults) for name, held in value.items()}
    if isinstance(value, list):
        return [_find_credentials(held, folder, faults) for held in value]
    named = _CREDENTIAL.fullmatch(value) if isinstance(value, str) else None
    if named is None:
        return value
    if not folder:
        faults.append(f"{value}: there is no CREDENTIALS_DIRECTORY; the service manager sets it")
    return str(Path(folder) / named[1])


def show(settings: Settings) -> Any:
    """The settings as JSON values for the log, without the user and password that a URL may name."""
    return _hide(settings.model_dump(mode="json"))


def _hide(value: Any) -> Any:
    if isinstance(value, str):
        return _USER_INFO.sub("***@", value)
    if isinstance(value, dict):
        return {name: _hide(held) for name, held in value.items()}
    return [_hide(held) for held in value] if isinstance(value, list) else value
