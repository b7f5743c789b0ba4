"""What retrieval costs the application: at most one embedding a post, and none where a brand is known by its name."""

import os
from pathlib import Path

import pytest
from rich.console import Console

from ssop_cli.opinion_load import run_load
from ssop_cli.opinion_load_mesh import LoadOptions
from ssop_cli.places import find_places


@pytest.mark.timeout(600)
def test_a_post_costs_one_embedding_at_most_and_none_where_its_brand_is_known(tmp_path: Path) -> None:
    options = LoadOptions(
        rate=40, duration_s=1.5, p50_ms=60, p99_ms=150, repost_share=0.0, known_share=0.5, retrieval=0.3
    )
    report = run_load(find_places(tmp_path / "state", os.environ), options, Console(quiet=True))
    looked_up = {name.partition('"')[2].rstrip('"}'): int(n) for name, n in report.brand_lookups.items()}
    assert report.records_of_accepted == 60
    assert looked_up["hit"] + looked_up["rag"] == 60
    assert looked_up["hit"] > 0 < looked_up["rag"]
    vectors = sum(report.query_vectors.values())
    assert vectors <= looked_up["rag"]
    assert report.cpu_ms_per_post_in_all > 0
    # How many passages come in time is the machine's affair; a post that is not looked up has none.
    with_passages = report.accuracy["records_with_passages"]
    assert with_passages is not None
    assert with_passages <= looked_up["rag"]
