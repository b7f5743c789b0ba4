"""docs/settings.md, in sync with the code, and without a setting that nobody explains."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "make_settings_doc.py"))


def test_page_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == TOOL["make_document"]()


def test_every_setting_is_explained() -> None:
    silent = [
        f"{section}.{name}"
        for section, kind in TOOL["SECTIONS"].items()
        for name, field in kind.model_fields.items()
        if not field.description
    ]
    assert silent == []
