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
        try:
            text = (await http.get(page, from_root=True)).decode(errors="replace")
            load = read_slots(text, 0.0) if page == "/slots" else read_metrics(text, 0.0)
        except (MeshError, WireError):
            continue
        if load is not None:
            return page
    return ""


def read_slots(text: str, now_s: float) -> ServerLoad | None:
    """What the page `/slots` of llama-server says; None where it says nothing."""
    try:
        slots = json.loads(text)
        return ServerLoad(sum(bool(slot["is_processing"]) for slot in slots), 0, now_s)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def read_metrics(text: str, now_s: float) -> ServerLoad | None:
    """Prometheus text. Values are summed over the engines of a server."""
    values = {"running": 0.0, "waiting": 0.0}
    is_found = False
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                kind = "running" if sample.name in _RUNNING else "waiting" if sample.name in _WAITING else ""
                if kind and sample.value >= 0:
                    values[kind] += sample.value
                    is_found = True
        return ServerLoad(int(values["running"]), int(values["waiting"]), now_s) if is_found else None
    except (ValueError, KeyError, IndexError, OverflowError):
        return None


def vllm_dialect(version: str) -> str:
    """`vllm` from the version on that takes `structured_outputs`; unknown versions are taken for new ones."""
    numbers = version.split(".")[:2]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        return "vllm" if tuple(map(int, numbers)) >= _STRUCTURED_SINCE else "vllm-guided"
    return "vllm"
