from pathlib import Path

import pytest

from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.settings import SettingsError, load_settings
from ssop_router.core.rules import make_excerpt
from ssop_router.settings import RouterSettings


def load(text: str, folder: Path, **environ: str) -> RouterSettings:
    path = folder / "ssop.toml"
    path.write_text(text)
    return load_settings(RouterSettings, "router", path=path, environ=environ)


def test_nodes_are_addresses_or_tables(tmp_path: Path) -> None:
    text = '[router]\nkeys_file = "k"\nnodes = ["a:1", {address = "b:2", tiers = ["lite"]}]\n'
    settings = load(text, tmp_path)
    assert [(node.address, node.tiers) for node in settings.nodes] == [("a:1", []), ("b:2", ["lite"])]


def test_router_without_nodes_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nodes"):
        load('[router]\nkeys_file = "k"\nnodes = []\n', tmp_path)


def test_models_map_to_tiers(tmp_path: Path) -> None:
    settings = load('[router]\nkeys_file = "k"\nnodes = ["a:1"]\n', tmp_path)
    assert settings.decision().model_tiers == {
        "grok-3": Tier.TIER_FULL,
        "grok-3-lite": Tier.TIER_LITE,
        "auto": Tier.TIER_UNSPECIFIED,
    }


def test_rules_are_data(tmp_path: Path) -> None:
    text = (
        '[router]\nkeys_file = "k"\nnodes = ["a:1"]\n'
        '[[router.rules]]\ntier = "lite"\nreason = "short_instruction"\nwords = ["ahoy"]\n'
    )
    (rule,) = load(text, tmp_path).decision().rules
    assert rule.applies(make_excerpt("Ahoy there"), 10, 0)


def test_every_setting_is_described() -> None:
    assert all(field.description for field in RouterSettings.model_fields.values())
