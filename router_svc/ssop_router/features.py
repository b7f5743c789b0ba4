# cython: annotation_typing=False
"""Reads from a request what the decision core weighs.

`features.pxd` gives the types with which this very file is compiled.
"""

from typing import Final

from ssop.v1.content_pb2 import Prompt, Role, ToolMode
from ssop.v1.mesh_pb2 import Tier
from ssop.v1.router_pb2 import GenerateRequest
from ssop_router.core.conversation import Conversation
from ssop_router.core.decision import Features
from ssop_router.core.policy import Policy
from ssop_router.core.prompt import PromptParts
from ssop_router.core.tuples import make

_NONE: Final[frozenset[str]] = frozenset()
_NO_TIER: Final = Tier.TIER_UNSPECIFIED
# Of its class: a message that is asked for a method looks for a field of that name first.
_has: Final = GenerateRequest.HasField


def read_features(
    request: GenerateRequest,
    parts: PromptParts,
    policy: Policy,
    scopes: frozenset[str],
    conversation: Conversation | None = None,
    *,
    is_cache_first: bool = False,
    canaries: frozenset[str] = frozenset(),
) -> Features:
    """The features of a request that has been checked. `is_cache_first`: too much fails of late."""
    documents, capabilities = 0, _NONE
    if parts.plain is not None:
        user_text, prompt_bytes = parts.plain
    else:
        user_text, prompt_bytes, documents, capabilities = _read_prompt(request.prompt)
    has_cache, has_retrieval = _has(request, "cache"), _has(request, "retrieval")
    tier, switches = (_NO_TIER, 0) if conversation is None else (conversation.tier, conversation.switches)
    # By place: eighteen names cost as much as all that is read here.
    return make(
        Features,
        (
            scopes,
            policy,
            request.model,
            user_text,
            documents,
            prompt_bytes,
            parts.max_output_tokens,
            capabilities,
            parts.needs_logprobs,
            parts.schema is not None,
            parts.temperature,
            has_cache and request.cache.allow_sampled,
            has_retrieval and bool(request.retrieval.collections),
            tier,
            switches,
            # Whoever takes no degraded answer takes no sampled one of somebody else's time either.
            is_cache_first and (not _has(request, "max_degraded_level") or request.max_degraded_level > 0),
            None,
            canaries,
        ),
    )


def _read_prompt(prompt: Prompt) -> tuple[str, int, int, frozenset[str]]:
    """The user's text, the bytes of all texts, the number of documents, and what a model must be able to take."""
    capabilities: set[str] = set()
    documents = prompt_bytes = 0
    for message in prompt.messages:
        for part in message.parts:
            kind = part.WhichOneof("part")
            if kind == "text":
                prompt_bytes += len(part.text.encode())
            elif kind == "document":
                documents += 1
                prompt_bytes += len(part.document.text.encode()) + len(part.document.title.encode())
            elif kind is not None:
                capabilities.add(kind)
        prompt_bytes += sum(len(call.arguments.encode()) for call in message.tool_calls)
        if message.tool_calls or message.role == Role.ROLE_TOOL:
            capabilities.add("tools")
    if prompt.tools and prompt.tool_choice.mode != ToolMode.TOOL_MODE_NONE:
        capabilities.add("tools")
        prompt_bytes += sum(len(tool.description.encode()) for tool in prompt.tools)
    return last_user_text(prompt), prompt_bytes, documents, frozenset(capabilities)


def last_user_text(prompt: Prompt) -> str:
    """The text parts of the last user message, joined by line breaks; empty where there is none."""
    for message in reversed(prompt.messages):
        if message.role == Role.ROLE_USER:
            return "\n".join(part.text for part in message.parts if part.WhichOneof("part") == "text")
    return ""
