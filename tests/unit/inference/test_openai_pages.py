"""What the pages of model servers say of their load and of their KV cache."""

import json
from typing import Any

import pytest

from ssop_inference.openai_pages import read_metrics, read_slots

VLLM = """\
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 2.0
"""


def slot(*, is_processing: bool = True, **fields: Any) -> dict[str, Any]:
    return {"id": 0, "n_ctx": 1_000, "is_processing": is_processing, **fields}


@pytest.mark.parametrize(
    ("line", "ratio"),
    [
        ('vllm:kv_cache_usage_perc{model_name="m"} 0.25', 0.25),
        ('vllm:gpu_cache_usage_perc{model_name="m"} 0.5', 0.5),
        ('sglang:token_usage{model_name="m"} 1.0', 1.0),
        ("vllm:kv_cache_usage_perc 0", 0.0),
        ("vllm:kv_cache_usage_perc NaN", None),
        ("vllm:kv_cache_usage_perc 25", None),
        ("", None),
    ],
)
def test_share_of_the_kv_cache_is_read(line: str, ratio: float | None) -> None:
    load = read_metrics(f"{VLLM}{line}\n", 7.0)
    assert load is not None
    assert (load.running, load.waiting, load.at_s, load.kv_used_ratio) == (3, 2, 7.0, ratio)


def test_fullest_engine_counts() -> None:
    lines = 'vllm:kv_cache_usage_perc{engine="0"} 0.9\nvllm:kv_cache_usage_perc{engine="1"} 0.1\n'
    load = read_metrics(VLLM + lines, 0.0)
    assert load is not None
    assert load.kv_used_ratio == 0.9


def test_share_alone_is_no_load() -> None:
    assert read_metrics("vllm:kv_cache_usage_perc 0.5\n", 0.0) is None


def test_slots_at_work_hold_what_they_have_read_and_written() -> None:
    page = [
        slot(n_prompt_tokens_processed=80, n_prompt_tokens_cache=20, next_token=[{"n_decoded": 100}]),
        # Its tokens are kept for a later prompt that begins alike, and make room for any other.
        slot(is_processing=False, n_prompt_tokens_processed=900),
    ]
    load = read_slots(json.dumps(page), 0.0)
    assert load is not None
    assert (load.running, load.kv_used_ratio) == (1, 0.1)


@pytest.mark.parametrize(
    ("page", "ratio"),
    [
        ([{"is_processing": True}], None),
        ([slot(n_ctx=0)], None),
        ([slot(n_prompt_tokens_processed=5_000)], 1.0),
        ([slot(n_prompt_tokens_processed=-1, next_token=[{"n_decoded": "x"}])], 0.0),
        ([slot(next_token=[])], 0.0),
    ],
)
def test_slots_that_say_little_have_no_share(page: list[Any], ratio: float | None) -> None:
    load = read_slots(json.dumps(page), 0.0)
    assert load is not None
    assert load.kv_used_ratio == ratio


@pytest.mark.parametrize(
    "text",
    ["", "1", "[1]", '[{"id": 1}]', "[" * 100_000, '[{"is_processing": true, "n_ctx": 9, "next_token": [1]}]'],
)
def test_page_that_is_none_of_slots_is_no_load(text: str) -> None:
    assert read_slots(text, 0.0) is None
