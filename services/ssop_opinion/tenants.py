"""What each tenant has configured: one file a tenant, TOML or JSON, named after it."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator

from ssop_chassis.api_keys import TENANT
from ssop_chassis.settings import Settings, SettingsError
from ssop_opinion.core.alert_policy import AlertPolicy

MIN_SECRET_BYTES: Final = 16


class WebhookKey(Settings):
    """A key that signs webhooks. The tenant is the one whose file has it, whatever a body says."""

    id: str = Field(pattern="^[A-Za-z0-9._-]{1,64}$", description="Its name, sent with each request.")
    secret_file: Path = Field(description="The secret, at least 16 bytes, on the first line of a file; mode 0600.")
    source: str = Field("webhook", pattern="^[A-Za-z0-9._-]{1,64}$", description="Name of the source in records.")
    region: str = Field("", max_length=64, description="Region of posts that name none.")
    product_line: str = Field("", max_length=64, description="Product line of posts that name none.")


class BrandEntry(Settings):
    """A brand or product of the tenant. Posts that name it need no retrieval."""

    name: str = Field(min_length=1, max_length=64, description="As records name it.")
    names: tuple[str, ...] = Field((), max_length=32, description="What else posts call it, handles too.")
    note: str = Field("", max_length=80, description="A word on it for the prompt, such as `phone`.")


class ExampleEntry(Settings):
    """A post and the answer that is wanted for it."""

    language: Literal["en", "zh"] = Field(description="Posts in this language are shown it.")
    text: str = Field(min_length=1, max_length=600, description="The post.")
    answer: dict[str, Any] = Field(description="An analysis that conforms to the schema of posts.")


class Tenant(Settings):
    """A tenant's file."""

    name: str = Field(
        pattern=TENANT.pattern, description="The tenant. It is the name of the file, and need not be given."
    )
    api_key_file: Path = Field(description="Its key of the mesh, with the scope `ssop`; mode 0600.")
    webhook_keys: tuple[WebhookKey, ...] = Field((), description="Who may post.")
    alerts: AlertPolicy = Field(default_factory=AlertPolicy, description="When an alert is due, and who is told.")
    has_unknown_members: bool = Field(
        False, description="Take webhooks' posts that have members of other names, without those."
    )

    instruction: str = Field("", max_length=1_000, description="A sentence for the model, after the shipped prompt.")
    examples: tuple[ExampleEntry, ...] = Field((), max_length=24, description="Examples of the tenant's own.")
    has_shipped_examples: bool = Field(
        False, description="Show the shipped examples first: for models larger than the embedded one."
    )
    brands: tuple[BrandEntry, ...] = Field((), max_length=5_000, description="What the tenant watches.")
    collections: tuple[str, ...] = Field(
        (), max_length=8, description="What is searched for posts that name no brand: products, earlier incidents."
    )
    rag_prefetch_ratio: float | None = Field(None, ge=0, le=1, description="As in requests; none: the mesh's.")
    policy: str = Field("", description="As `x-router-policy`, such as `lite`.")
    allows_similar: bool = Field(
        False, description="Take the stored answer to a similar post, where the mesh allows it."
    )

    @field_validator("webhook_keys")
    @classmethod
    def _ids_differ(cls, keys: tuple[WebhookKey, ...]) -> tuple[WebhookKey, ...]:
        if len({key.id for key in keys}) < len(keys):
            raise ValueError("two webhook keys have the same id")
        return keys


class Tenants(Mapping[str, Tenant]):
    """All tenants, by name."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self._tenants = dict(tenants)

    def __getitem__(self, name: str) -> Tenant:
        return self._tenants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tenants)

    def __len__(self) -> int:
        return len(self._tenants)

    def add(self, tenants: Mapping[str, Tenant]) -> None:
        """Add new ones."""
        self._tenants.update(tenants)


def load_tenants(folder: Path) -> Tenants:
    """The tenants of a folder, at least one; paths in a file are relative to it. Raises SettingsError."""
    faults: list[str] = []
    found: dict[str, Tenant] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in {".toml", ".json"})
    except OSError as error:
        raise SettingsError(f"{folder} can't be read: {error.strerror}") from error
    for path in paths:
        try:
            tenant = _load(path)
        except SettingsError as error:
            faults.append(str(error))
            continue
        if tenant.name in found:
            faults.append(f"{path}: tenant '{tenant.name}' has two files")
        found[tenant.name] = tenant
    owners: dict[str, str] = {}
    for tenant in found.values():
        faults += [
            f"webhook key '{key.id}' belongs to {owners[key.id]} and {tenant.name}"
            for key in tenant.webhook_keys
            if owners.setdefault(key.id, tenant.name) != tenant.name
        ]
    if not paths:
        faults.append(f"{folder} holds no tenant: it needs a file such as NAME.toml")
    if faults:
        raise SettingsError("\n".join(faults))
    return Tenants(found)


def _load(path: Path) -> Tenant:
    try:
        text = path.read_text(encoding="utf-8")
        document: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path} can't be used: {error}") from error
    if not isinstance(document, dict):
        raise SettingsError(f"{path} holds no table")
    if document.setdefault("name", path.stem) != path.stem:
        raise SettingsError(f"{path}: the tenant '{document['name']}' must be named as its file")
    try:
        return Tenant.model_validate(_resolve(document, path.parent))
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        raise SettingsError(
            "\n".join(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
        ) from error


def _resolve(value: Any, folder: Path) -> Any:
    """The document, with each `..._file` and `..._directory` relative to its folder."""
    if isinstance(value, dict):
        return {
            key: str(folder / held)
            if key.endswith(("_file", "_directory")) and isinstance(held, str) and held
            else _resolve(held, folder)
            for key, held in value.items()
        }
    return [_resolve(held, folder) for held in value] if isinstance(value, list) else value


def read_secret(path: Path, *, at_least_bytes: int = 1) -> str:
    """The first line of a file. Raises SettingsError, without its content."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the file '{path}' can't be read: {type(error).__name__}") from error
    secret = lines[0].strip() if lines else ""
    if len(secret.encode()) < at_least_bytes:
        raise SettingsError(f"the file '{path}' has no secret of at least {at_least_bytes} bytes on its first line")
    return secret
