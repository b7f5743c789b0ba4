"""Regenerate the committed protobuf stubs: `python tools/gen_protos.py [OUT]` (default protos/gen).

Needs the dependency group `protos`. Its versions are pinned on purpose: generated code refuses runtimes older
than its generator, so the generator is the oldest runtime that the project supports.
"""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"


def generate(out: Path) -> None:
    """Write stubs, type stubs and package markers for every proto under `out`; raise SystemExit on errors."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("ssop/**/*.proto"))
    bundled = str(resources.files("grpc_tools") / "_proto")
    out.mkdir(parents=True, exist_ok=True)
    arguments = ["protoc", f"-I{PROTOS}", f"-I{bundled}"]
    arguments += [f"--{kind}={out}" for kind in ("python_out", "grpc_python_out", "mypy_out", "mypy_grpc_out")]
    status = protoc.main(arguments + sources)
    if status:
        raise SystemExit(status)
    for package in {folder for source in sources for folder in Path(source).parents if folder.name}:
        (out / package / "__init__.py").touch()
    (out / "ssop" / "py.typed").touch()


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS / "gen")
