"""Section `inference` of ssop.toml."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ssop_chassis.settings import Settings

Tier = Literal["lite", "full"]


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
    """One model: from the store by its name, or a GGUF file by `path`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$", description="Name that requests use.")]
    path: Path | None = Field(None, description="GGUF file. Absent: the model of that name in the store.")
    tiers: tuple[Tier, ...] = Field(("lite",), min_length=1, description="Tiers that it serves.")
    context_tokens: int = Field(2048, ge=64, description="Context of one request, prompt and answer together.")
    slots: int = Field(4, gt=0, le=256, description="Requests that generate at the same time.")
    has_schema_in_prompt: bool = Field(
        False,
        description="Show the model the schema even where a grammar holds it: better answers from models that can"
        " read one, more prompt tokens.",
    )


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
    max_schemas: int = Field(256, gt=0, description="Compiled schemas that are kept.")
    limits: LimitSettings = Field(LimitSettings(), description="Engine limits.")
    warm_up_timeout_ms: int = Field(
        60_000, gt=0, description="Longest time for the one token that each model generates before the node serves."
    )

    @property
    def engine_threads(self) -> int:
        """CPU threads of an engine."""
        return self.threads or max(1, (os.cpu_count() or 1) - 1)
