"""Lines of a decision log."""

from typing import Any

TIER = {
    "headroom": 1.0,
    "headroom_spread": 0.0,
    "headroom_age_ms": 10,
    "headroom_weakness": "",
    "success": 1.0,
    "success_spread": 0.0,
    "success_age_ms": 10,
    "loss": "",
}


def line(
    score: float | None = 0.5,
    *,
    tier: str = "full",
    reason: str = "score",
    served_by: str | None = None,
    cache: str = "miss",
    tokens: tuple[int, int] = (100, 50),
    times_ms: tuple[int, int] = (200, 1200),
    words: dict[str, bool] | None = None,
    losses: dict[str, str] | None = None,
    at_ms: int = 0,
    **request: Any,
) -> dict[str, Any]:
    """A line as the router writes it; `request` changes what was asked."""
    asked = {
        "chars": 500,
        "prompt_bytes": 500,
        "documents": 0,
        "max_output_tokens": 0,
        "capabilities": [],
        "logprobs": False,
        "schema": True,
        "temperature": 0.0,
        "policy": "auto",
        "model": "",
        "scopes": ["full", "lite"],
        "conversation": "",
        **request,
    }
    losses = losses or {}
    return {
        "v": 1,
        "at_ms": at_ms,
        "request_id": "r",
        "tenant": "t",
        "request": asked,
        "words": words or {},
        "complexity": {"score": score, "spread": 0.0, "abstention": "" if score is not None else "off"},
        "tiers": {name: {**TIER, "loss": losses.get(name, "")} for name in ("lite", "full")},
        "decision": {"tier": tier, "reason": reason, "node": "n", "node_reason": "only_one"},
        "result": {
            "outcome": "OK",
            "served_by": tier if served_by is None else served_by,
            "cache": cache,
            "degraded_level": 0,
            "first_field_ms": times_ms[0],
            "total_ms": times_ms[1],
            "input_tokens": tokens[0],
            "output_tokens": tokens[1],
        },
    }
