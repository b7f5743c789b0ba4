"""The pages of OpenAI-compatible servers beside the chat: models, version, load."""

import json
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.core.upstream_errors import WireError
from ssop_inference.upstream_http import UpstreamHttp
from ssop_inference.wire import ServerLoad

# The first version of vLLM that takes `structured_outputs`.
_STRUCTURED_SINCE: Final = (0, 11)
_RUNNING: Final = ("llamacpp:requests_processing", "vllm:num_requests_running", "sglang:num_running_reqs")
_WAITING: Final = ("llamacpp:requests_deferred", "vllm:num_requests_waiting", "sglang:num_queue_reqs")
# Under both, since the name changed (vLLM 0.10); a server has one of them.
_KV_USED: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
_LLGUIDANCE_PROBE: Final = '%llguidance {}\nstart: "ok"'


def whole(value: Any) -> int:
    """A number of tokens or slots; 0 for what is none."""
    return value if isinstance(value, int) and 0 < value < 2**31 else 0


async def get_page(http: UpstreamHttp, path: str) -> dict[str, Any]:
    """A page of the server's own; empty where it has none. Raises MeshError where the server can't be reached."""
    try:
        return await http.get_object(path, from_root=True)
    except WireError:
        return {}
    except MeshError as error:
        if "status" in error.metadata:
            return {}
        raise


async def list_models(http: UpstreamHttp) -> list[dict[str, Any]]:
    """The models that a server lists; none where it has no such page. Raises MeshError."""
    try:
        listed = (await http.get_object("/models")).get("data")
    except WireError:
        return []
    except MeshError as error:
        if error.metadata.get("status") == "404":
            return []
        raise
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


async def takes_llguidance(http: UpstreamHttp) -> bool:
    """Whether a llama-server was built with llguidance. Raises MeshError where it is not to be seen."""
    body = {"prompt": "a", "n_predict": 1, "grammar": _LLGUIDANCE_PROBE}
    try:
        answer = await http.post("/completion", body, from_root=True)
    except WireError:
        return False
    except MeshError as error:
        if error.reason in {ErrorReason.ERROR_REASON_INTERNAL, ErrorReason.ERROR_REASON_BACKEND_FAILED}:
            return False
        raise
    return str(answer.get("content", "")).startswith("o")


async def find_load_page(http: UpstreamHttp) -> str:
    """The page that says the load; `/metrics` knows of waiting requests too."""
    for page in ("/metrics", "/slots"):
        if await says_load(http, page):
            return page
    return ""


async def says_load(http: UpstreamHttp, page: str) -> bool:
    """Whether a page is there and says the load."""
    try:
        text = (await http.get(page, from_root=True)).decode(errors="replace")
    except (MeshError, WireError):
        return False
    return (read_slots(text, 0.0) if page == "/slots" else read_metrics(text, 0.0)) is not None


def read_slots(text: str, now_s: float) -> ServerLoad | None:
    """What the page `/slots` of llama-server says; None where it says nothing."""
    try:
        slots = json.loads(text)
        running = sum(bool(slot["is_processing"]) for slot in slots)
        return ServerLoad(running, 0, now_s, _kv_of_slots(slots))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _kv_of_slots(slots: list[dict[str, Any]]) -> float | None:
    """Tokens that slots at work hold, of all that fit. What an idle slot keeps for later makes room when it must."""
    total = sum(whole(slot.get("n_ctx")) for slot in slots)
    if not total:
        return None
    used = 0
    for slot in slots:
        if slot["is_processing"]:
            decoded = sum(whole(entry.get("n_decoded")) for entry in slot.get("next_token", ()))
            read = whole(slot.get("n_prompt_tokens_processed")) + whole(slot.get("n_prompt_tokens_cache"))
            used += read + decoded
    return min(1.0, used / total)


def read_metrics(text: str, now_s: float) -> ServerLoad | None:
    """Prometheus text. Values are summed over the engines of a server; of their KV caches the fullest counts."""
    values = {"running": 0.0, "waiting": 0.0}
    kv_used_ratio: float | None = None
    is_found = False
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                kind = "running" if sample.name in _RUNNING else "waiting" if sample.name in _WAITING else ""
                if kind and sample.value >= 0:
                    values[kind] += sample.value
                    is_found = True
                # A share, whatever its name says.
                if sample.name in _KV_USED and 0 <= sample.value <= 1:
                    kv_used_ratio = max(kv_used_ratio or 0.0, sample.value)
        if not is_found:
            return None
        return ServerLoad(int(values["running"]), int(values["waiting"]), now_s, kv_used_ratio)
    except (ValueError, KeyError, IndexError, OverflowError):
        return None


def vllm_dialect(version: str) -> str:
    """`vllm` from the version on that takes `structured_outputs`; unknown versions are taken for new ones."""
    numbers = version.split(".")[:2]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        return "vllm" if tuple(map(int, numbers)) >= _STRUCTURED_SINCE else "vllm-guided"
    return "vllm"
