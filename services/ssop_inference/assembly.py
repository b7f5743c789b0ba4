"""From settings to the node that they describe."""

from ssop_inference.core.limits import EngineLimits
from ssop_inference.embedded import EmbeddedBackend, EmbeddedOptions
from ssop_inference.models import find_model
from ssop_inference.node import Model, Node
from ssop_inference.settings import InferenceSettings, ModelSettings


def build_node(settings: InferenceSettings) -> Node:
    """The node, its models not loaded yet. Raises ModelError when the store lacks one. Needs a running loop."""
    node = Node(settings.node, [])
    node.models = [
        Model(
            EmbeddedBackend(model.name, embedded_options(settings, model), on_change=node.notify),
            model.tiers,
            model.has_schema_in_prompt,
        )
        for model in settings.models
    ]
    return node


def embedded_options(settings: InferenceSettings, model: ModelSettings) -> EmbeddedOptions:
    """How the embedded engine runs a model. Raises ModelError when the store lacks it."""
    limits = settings.limits
    return EmbeddedOptions(
        path=model.path or find_model(settings.models_dir, model.name),
        context_tokens=model.context_tokens,
        slots=model.slots,
        threads=settings.engine_threads,
        max_waiting=settings.max_waiting,
        max_output_tokens=settings.max_output_tokens,
        prefill_batch_tokens=settings.prefill_batch_tokens,
        prompt_cache_mib=settings.prompt_cache_mib,
        limits=EngineLimits(
            max_string_chars=limits.max_string_chars,
            max_array_items=limits.max_array_items,
            max_object_keys=limits.max_object_keys,
            number_fraction_digits=limits.number_fraction_digits,
        ),
    )
