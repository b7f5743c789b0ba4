"""Reads from a request what the decision core weighs."""

from ssop.v1.content_pb2 import Prompt, Role, ToolMode
from ssop.v1.mesh_pb2 import Tier
from ssop.v1.router_pb2 import GenerateRequest
from ssop_router.core.conversation import Conversation
from ssop_router.core.decision import Features
from ssop_router.core.policy import Policy


def read_features(
    request: GenerateRequest,
    policy: Policy,
    scopes: frozenset[str],
    conversation: Conversation | None = None,
    *,
    is_cache_first: bool = False,
    canaries: frozenset[str] = frozenset(),
) -> Features:
    """The features of a request that has been checked. `is_cache_first`: too much fails of late."""
    prompt = request.prompt
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
    return Features(
        scopes=scopes,
        policy=policy,
        model=request.model,
        user_text=last_user_text(prompt),
        documents=documents,
        prompt_bytes=prompt_bytes,
        max_output_tokens=prompt.sampling.max_output_tokens,
        capabilities=frozenset(capabilities),
        needs_logprobs=prompt.logprobs,
        has_schema=prompt.HasField("output_schema"),
        temperature=prompt.sampling.temperature,
        is_sampled_cacheable=request.cache.allow_sampled,
        names_collections=bool(request.retrieval.collections),
        conversation_tier=conversation.tier if conversation is not None else Tier.TIER_UNSPECIFIED,
        conversation_switches=conversation.switches if conversation is not None else 0,
        canaries=canaries,
        # Whoever takes no degraded answer takes no sampled one of somebody else's time either.
        is_cache_first=is_cache_first
        and (not request.HasField("max_degraded_level") or request.max_degraded_level > 0),
    )


def last_user_text(prompt: Prompt) -> str:
    """The text parts of the last user message, joined by line breaks; empty where there is none."""
    for message in reversed(prompt.messages):
        if message.role == Role.ROLE_USER:
            return "\n".join(part.text for part in message.parts if part.WhichOneof("part") == "text")
    return ""
