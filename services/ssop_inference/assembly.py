"""From settings to the node that they describe."""

import stat
from collections.abc import Callable
from pathlib import Path

from ssop_inference.anthropic_wire import VERSION, AnthropicWire
from ssop_inference.backend import Backend
from ssop_inference.core.limits import EngineLimits
from ssop_inference.embedded import EmbeddedBackend, EmbeddedOptions
from ssop_inference.gate import SchemaGate
from ssop_inference.models import ModelError, find_model
from ssop_inference.node import Model, Node
from ssop_inference.openai_wire import OpenAiWire
from ssop_inference.replay import RecordingError, ReplayBackend, read_recording
from ssop_inference.settings import InferenceSettings, LimitSettings, ModelSettings
from ssop_inference.upstream import UpstreamBackend, UpstreamOptions
from ssop_inference.upstream_http import HttpOptions, UpstreamHttp
from ssop_inference.wire import Wire

_MAX_KEY_BYTES = 4096
# Beside what generates: counting, the load, and one that is being closed.
_SPARE_CONNECTIONS = 8


def build_node(settings: InferenceSettings) -> Node:
    """The node, its models not loaded yet. Raises ModelError for what the settings name and is not there.

    Needs a running loop.
    """
    node = Node(settings.node, [])
    node.models = [
        Model(
            _build_backend(settings, model, node),
            model.tiers,
            model.has_schema_in_prompt,
            is_remote=bool(model.url),
        )
        for model in settings.models
    ]
    return node


def _build_backend(settings: InferenceSettings, model: ModelSettings, node: Node) -> Backend:
    if model.backend == "embedded":
        return EmbeddedBackend(model.name, embedded_options(settings, model), on_change=node.notify)
    if model.backend == "replay":
        try:
            recording = read_recording(model.path or Path())
        except RecordingError as error:
            raise ModelError(f"model {model.name}: {error}") from error
        return ReplayBackend(
            model.name, recording, slots=model.slots, max_waiting=settings.max_waiting, on_change=node.notify
        )
    return build_upstream(settings, model, on_change=node.notify, on_lost=lambda: node.bring_back(model.name))


def build_upstream(
    settings: InferenceSettings,
    model: ModelSettings,
    *,
    on_change: Callable[[], None] = lambda: None,
    on_lost: Callable[[], None] = lambda: None,
) -> UpstreamBackend:
    """A model behind its server. Raises ModelError. Needs a running loop."""
    wire, http = _build_wire(model, settings.limits)
    options = UpstreamOptions(
        context_tokens=model.context_tokens,
        slots=model.slots,
        has_images=model.has_images,
        max_waiting=settings.max_waiting,
        max_output_tokens=settings.max_output_tokens,
        first_token_timeout_s=model.first_token_timeout_ms / 1000,
        stall_timeout_s=model.stall_timeout_ms / 1000,
        load_timeout_s=settings.warm_up_timeout_ms / 1000,
        load_period_s=model.load_period_ms / 1000,
    )
    return UpstreamBackend(model.name, wire, http, options, on_change=on_change, on_lost=on_lost)


def _build_wire(model: ModelSettings, limits: LimitSettings) -> tuple[Wire, UpstreamHttp]:
    is_anthropic = model.backend == "anthropic"
    headers = {"anthropic-version": VERSION} if is_anthropic else {}
    if model.api_key_file is not None:
        key = _read_key(model.api_key_file)
        headers |= {"x-api-key": key} if is_anthropic else {"authorization": f"Bearer {key}"}
    options = HttpOptions(
        model.url,
        headers,
        connect_timeout_s=model.connect_timeout_ms / 1000,
        connections=model.slots + _SPARE_CONNECTIONS,
        ca_file=model.ca_file,
        proxy=model.proxy,
    )
    try:
        http = UpstreamHttp(options)
    except (ValueError, OSError) as error:
        raise ModelError(f"model {model.name}: {error}") from error
    if is_anthropic:
        anthropic = AnthropicWire(
            model=model.upstream_model,
            dialect=model.dialect,
            extra_body=model.extra_body,
            has_tools=model.has_tools is not False,
        )
        return anthropic, http
    wire = OpenAiWire(
        model=model.upstream_model,
        dialect=model.dialect,
        gate=SchemaGate(),
        limits=engine_limits(limits),
        extra_body=model.extra_body,
        has_tools=model.has_tools,
    )
    return wire, http


def _read_key(path: Path) -> str:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ModelError(f"{path} holds a key, and others may read it; give it mode 0600")
        with path.open(encoding="ascii") as file:
            key = file.read(_MAX_KEY_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"the key in {path} can't be read: {type(error).__name__}") from error
    if not key or not key.isprintable() or " " in key:
        raise ModelError(f"{path} holds no key")
    return key


def embedded_options(settings: InferenceSettings, model: ModelSettings) -> EmbeddedOptions:
    """How the embedded engine runs a model. Raises ModelError when the store lacks it."""
    return EmbeddedOptions(
        path=model.path or find_model(settings.models_dir, model.name),
        context_tokens=model.embedded_context_tokens,
        slots=model.slots,
        threads=settings.engine_threads,
        max_waiting=settings.max_waiting,
        max_output_tokens=settings.max_output_tokens,
        prefill_batch_tokens=settings.prefill_batch_tokens,
        prompt_cache_mib=settings.prompt_cache_mib,
        limits=engine_limits(settings.limits),
    )


def engine_limits(limits: LimitSettings) -> EngineLimits:
    """The limits of the settings as the grammars take them."""
    return EngineLimits(
        max_string_chars=limits.max_string_chars,
        max_array_items=limits.max_array_items,
        max_object_keys=limits.max_object_keys,
        number_fraction_digits=limits.number_fraction_digits,
    )
