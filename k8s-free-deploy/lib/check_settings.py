"""Whether a release can use a host's settings: `RELEASE/bin/python check_settings.py SSOP_TOML CREDENTIALS`."""

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Final

from ssop_chassis.settings import MeshSettings, Settings, SettingsError, load_settings

KINDS: Final = {
    "cache": "CacheSettings",
    "rag": "RagSettings",
    "inference": "InferenceSettings",
    "router": "RouterSettings",
    "gateway": "GatewaySettings",
    "opinion": "OpinionSettings",
    "ebpf": "EbpfSettings",
}


def _kind(section: str) -> type[Settings]:
    if section == "mesh":
        return MeshSettings
    kind: type[Settings] = getattr(importlib.import_module(f"ssop_{section}.settings"), KINDS[section])
    return kind


def main(path: Path, credentials: str) -> int:
    """Say every fault, and return 1 if there is one. Secrets are not read, only named."""
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"ssop: {path}: {error}\n")
        return 1
    faults = [f"[{section}] is no section" for section in sections if section != "mesh" and section not in KINDS]
    for section in sections.keys() & {"mesh", *KINDS}:
        try:
            load_settings(_kind(section), section, path=path, environ={"CREDENTIALS_DIRECTORY": credentials})
        except SettingsError as error:
            faults.append(str(error))
        except (ImportError, AttributeError) as error:
            faults.append(f"[{section}] this release has no such service, or not all that it needs: {error}")
    if faults:
        sys.stderr.write("ssop: this release can't use the settings:\n" + "\n".join(dict.fromkeys(faults)) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
