"""Write docs/settings.md from the settings classes: `python tools/make_settings_doc.py [OUT]`."""

import sys
from pathlib import Path
from typing import Final, get_args, get_origin

from pydantic.fields import FieldInfo

from ssop_cache.settings import CacheSettings
from ssop_chassis.settings import MeshSettings, Settings
from ssop_ebpf.settings import EbpfSettings
from ssop_gateway.settings import GatewaySettings
from ssop_inference.settings import InferenceSettings
from ssop_opinion.settings import OpinionSettings
from ssop_rag.settings import RagSettings
from ssop_router.settings import RouterSettings

OUT: Final = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
SECTIONS: Final[dict[str, type[Settings]]] = {
    "mesh": MeshSettings,
    "router": RouterSettings,
    "inference": InferenceSettings,
    "cache": CacheSettings,
    "rag": RagSettings,
    "gateway": GatewaySettings,
    "opinion": OpinionSettings,
    "ebpf": EbpfSettings,
}
_HEAD: Final = """\
# Settings

Made by `tools/make_settings_doc.py` from the code; a test holds it in sync.

One file, `ssop.toml`, with a table for each section. `SSOP_<SECTION>_<KEY>` in the environment overrides a key (lists
and tables as JSON). An unknown section, key or variable stops the start, with all faults in one message.
"""


def describe(name: str, field: FieldInfo) -> str:
    """A row of a section's table."""
    if field.is_required():
        default = "required"
    elif field.default_factory is not None or _holds_tables(field.default):
        # Many are long, and some depend on the machine.
        default = "computed"
    else:
        default = f"`{field.default}`" if str(field.default) else "empty"
    return f"| `{name}` | {default} | {(field.description or '').replace('|', '/')} |"


def make_document() -> str:
    """The whole page."""
    parts = [_HEAD]
    for section, kind in SECTIONS.items():
        parts += describe_table(section, kind, "##")
    return "\n".join(parts)


def describe_table(name: str, kind: type[Settings], heading: str) -> list[str]:
    """A table, and the tables in it."""
    fields = kind.model_fields
    rows = [describe(key, field) for key, field in fields.items()]
    parts = ["\n".join([f"{heading} `[{name}]`\n", "| key | default | meaning |", "|---|---|---|", *rows, ""])]
    for key, field in fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings):
            parts += describe_table(f"{name}.{key}", inner, "###")
        for one in get_args(inner):
            if get_origin(inner) in {tuple, dict} and isinstance(one, type) and issubclass(one, Settings):
                table = f"[{name}.{key}]" if get_origin(inner) is tuple else f"{name}.{key}.NAME"
                parts += describe_table(table, one, "###")
    return parts


def _holds_tables(default: object) -> bool:
    return isinstance(default, tuple) and any(isinstance(value, Settings) for value in default)


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else OUT).write_text(make_document(), encoding="utf-8")
