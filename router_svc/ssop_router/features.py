"""Reads from a request what the decision core weighs."""

from ssop.v1.content_pb2 import Prompt, Role, ToolMode
from ssop.v1.mesh_pb2 import Tier
from ssop.v1.router_pb2 import GenerateRequest
from ssop_router.core.decision import Features
from ssop_router.core.policy import Policy


def read_features(
    request: GenerateRequest,
    policy: Policy,
    scopes: frozenset[str],
    conversation_tier: Tier.ValueType = Tier.TIER_UNSPECIFIED,
) -> Features:
    """The features of a request that has been checked."""
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
    if prompt.tools and prompt.tool_choice.mode != ToolMode.TOOL_MODE_NONE:
        capabilities.add("tools")
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
        conversation_tier=conversation_tier,
    )


def last_user_text(prompt: Prompt) -> str:
    """The text parts of the last user message, joined by line breaks; empty where there is none."""
    for message in reversed(prompt.messages):
        if message.role == Role.ROLE_USER:
            return "\n".join(part.text for part in message.parts if part.WhichOneof("part") == "text")
    return ""
