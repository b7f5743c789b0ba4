"""ONNX Runtime keeps nothing in the user's home, and so has nothing to send."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("router_svc", "rag_svc", "services", "codec")
LOADS = {
    "classifier": "from pathlib import Path; from ssop_router import classification; from ssop_router.classification"
    ".model import open_model; open_model(next(Path(classification.__file__).parent.rglob('*.onnx')), ['cpu'])",
    "hint": "from ssop_opinion.hint.model import open_hint; open_hint()",
}


@pytest.mark.parametrize("what", LOADS)
def test_runtime_leaves_no_trace_at_home(what: str, tmp_path: Path) -> None:
    environ = {
        name: value for name, value in os.environ.items() if name not in {"XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"}
    }
    environ["HOME"] = str(tmp_path)
    command = [sys.executable, "-c", LOADS[what]]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not any(tmp_path.iterdir())


def test_nothing_imports_the_runtime_in_another_way() -> None:
    own = "onnx_runtime.py"
    for path in (found for package in PACKAGES for found in (ROOT / package).rglob("*.py") if found.name != own):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert "onnxruntime" not in {name.partition(".")[0] for name in names}, path
