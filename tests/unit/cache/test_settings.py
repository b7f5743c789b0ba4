"""Section `cache`."""

from pathlib import Path
from typing import Any

import pytest

from ssop_cache.settings import CacheSettings
from ssop_chassis.settings import SettingsError, load_settings

URLS = {"SSOP_CACHE_STATE_URL": "unix:///s", "SSOP_CACHE_CACHE_URL": "unix:///c"}


def load(**environ: str) -> CacheSettings:
    return load_settings(CacheSettings, "cache", path=None, environ=URLS | environ)


def test_urls_are_all_it_needs() -> None:
    settings = load()
    assert (settings.redis_timeout_ms, settings.limits.interval_us, settings.limits.budget_tokens) == (50, 0, 0)


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"SSOP_CACHE_CACHE_URL": "unix:///s"}, "one instance can't both evict and keep"),
        ({"SSOP_CACHE_MAX_ANSWER_BYTES": "9999999"}, "max_answer_bytes is larger than max_backlog_bytes"),
        ({"SSOP_CACHE_BURST": "0"}, "burst"),
        ({"SSOP_CACHE_REDIS_TIMEOUT": "5"}, "redis_timeout"),
        ({"SSOP_CACHE_RATE_LIMIT_MODE": "sometimes"}, "rate_limit_mode"),
        ({"SSOP_CACHE_RATE_LIMIT_MODE": "dynamic", "SSOP_CACHE_MAX_RPS": "0.5"}, "min_rps is larger"),
    ],
)
def test_fault_is_named(environ: dict[str, Any], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        load(**environ)


def test_rate_becomes_an_interval_and_a_tolerance() -> None:
    limits = load(SSOP_CACHE_MAX_RPS="50", SSOP_CACHE_BURST="4").limits
    assert (limits.interval_us, limits.tolerance_us) == (20_000, 80_000)


def test_static_limit_does_not_follow_load() -> None:
    limits = load(SSOP_CACHE_MAX_RPS="50").limits
    assert limits.under(0.1) is limits


def test_dynamic_limit_follows_load_between_its_bounds() -> None:
    limits = load(SSOP_CACHE_RATE_LIMIT_MODE="dynamic", SSOP_CACHE_MAX_RPS="50", SSOP_CACHE_MIN_RPS="5").limits
    assert [limits.under(share).max_rps for share in (1.0, 0.5, 0.01, 0.0)] == [50, 25, 5, 50]


def test_burst_of_a_dynamic_limit_keeps_its_length_in_time() -> None:
    limits = load(SSOP_CACHE_RATE_LIMIT_MODE="dynamic", SSOP_CACHE_MAX_RPS="50", SSOP_CACHE_BURST="4").limits.under(0.5)
    assert (limits.interval_us, limits.tolerance_us) == (40_000, 80_000)
    assert limits.under(0.02).tolerance_us >= limits.under(0.02).interval_us


def test_dynamic_limit_without_max_rps_has_a_ceiling() -> None:
    assert load(SSOP_CACHE_RATE_LIMIT_MODE="dynamic", SSOP_CACHE_CEILING_RPS="70").limits.max_rps == 70


def test_every_field_is_described() -> None:
    assert [name for name, field in CacheSettings.model_fields.items() if not field.description] == []


SENTINELS = {
    "SSOP_CACHE_STATE_URL": "",
    "SSOP_CACHE_STATE_MODE": "sentinel",
    "SSOP_CACHE_STATE_NODES": '["s1:26379", "[::1]:26379"]',
    "SSOP_CACHE_STATE_MASTER": "mesh-state",
}
CLUSTER = {
    "SSOP_CACHE_STATE_URL": "",
    "SSOP_CACHE_STATE_MODE": "cluster",
    "SSOP_CACHE_STATE_NODES": '["n1:7000"]',
}


def for_cache(environ: dict[str, str]) -> dict[str, str]:
    return {name.replace("STATE", "CACHE"): value for name, value in environ.items()}


def test_sentinels_and_their_master_are_all_that_mode_needs() -> None:
    access = load(**SENTINELS).access("state")
    assert (access.nodes, access.master) == ((("s1", 26379), ("::1", 26379)), "mesh-state")


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"SSOP_CACHE_STATE_URL": ""}, "state_url is missing"),
        ({"SSOP_CACHE_STATE_MODE": "cluster"}, "takes state_nodes, and no state_url"),
        ({"SSOP_CACHE_STATE_NODES": '["n:1"]'}, "are for other modes than standalone"),
        (SENTINELS | {"SSOP_CACHE_STATE_MASTER": ""}, "state_master is for the mode sentinel, and needed there"),
        (CLUSTER | {"SSOP_CACHE_STATE_MASTER": "m"}, "state_master is for the mode sentinel"),
        (CLUSTER | {"SSOP_CACHE_STATE_NODES": '["n1"]'}, "'n1' is not host:port"),
        (CLUSTER | {"SSOP_CACHE_STATE_NODES": '["n1:70000"]'}, "is not host:port"),
        (CLUSTER | for_cache(CLUSTER), "one cluster: its nodes can't both evict and keep"),
        (SENTINELS | for_cache(SENTINELS), "one master can't both evict and keep"),
        ({"SSOP_CACHE_REDIS_KEY_FILE": "/k"}, "go together"),
    ],
)
def test_fault_of_a_deployment_is_named(environ: dict[str, Any], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        load(**environ)


def test_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("s3cret\nmore\n")
    access = load(SSOP_CACHE_STATE_PASSWORD_FILE=str(path)).access("state")
    assert access.password == "s3cret"
    assert "s3cret" not in repr(access)


@pytest.mark.parametrize("content", [None, "", "\nx\n"])
def test_password_file_that_holds_none_stops_the_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match="password"):
        load(SSOP_CACHE_STATE_PASSWORD_FILE=str(path)).access("state")
